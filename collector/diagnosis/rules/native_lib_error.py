"""A shared library or binary extension is missing or does not match (beats import_error, rule 6)."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="native_lib_error",
    fault="dependency",
    retry="no",
    because=(
        "a native library is missing or does not match[: {library}][ ({symbol} is not in it)][ "
        "({version} is not there)]"
    ),
    details=(
        Detail(
            "library",
            r"([\w.+-]{2,80}\.so(?:\.[\d.]+)?)\b(?=: cannot open|: undefined|: version)"
            r"|\b(lib[\w.+-]{2,60}\.so(?:\.[\d.]+)?|lib\w+\.dll|\w+\.dll)\b",
        ),
        Detail("symbol", r"undefined symbol: (\w{2,60})"),
        Detail("version", r"version [`'](GLIBC\w*_[\d.]+|CXXABI_[\d.]+)'"),
        Detail("extension", r"([\w.-]{2,60})\.cpython-\d+"),
    ),
    advice=(
        "Rebuild or reinstall {extension} for the framework version in the image.",
        "Pin the framework and its extensions to builds that belong together (same torch, CUDA "
        "and Python), and install {library}"
        " in the image.",
        "Do not retry: the image has to change.",
    ),
    quotes=True,
    signals=(
        Signal(
            r"undefined symbol|symbol lookup error|cannot open shared object file"
            r"|WinError 126|find CUDA library root|libcuda\.so cannot found"
            r"|failed to open lib[\w.-]{1,60}\.so|Library \S{1,60}\.(?:so|dll)\S{0,12} is not found or cannot be loaded"
            r"|Could not load (?:dynamic )?library|Could not load lib\w{3,40}\b|Could not locate \S{3,60}\.(?:dll"
            r"|so)\b|[`']?(?:GLIBC|GLIBCXX|CXXABI"
            r"|GCC)_[\d.]+[`']? not found|invalid ELF header|wrong ELF class|file too short"
            r"|ELF load command|DLL load failed|cannot allocate memory in static TLS block"
            r"|image not found[^\n]{0,40}dylib|Library not loaded"
            r"|error while loading shared libraries|incompatible (?:with the )?(?:binary|ABI)"
            r"|compiled (?:for|against|with) (?:a )?(?:different|another|an older|a newer) version"
            r"|version `\S{1,40}' not found|cannot load library|unable to load shared library"
            r"|Unable to load (?:dynamic )?(?:library|any of)|failed to load (?:shared )?library",
            "the loader's own message",
            (
                "ImportError: /usr/lib/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: "
                "undefined symbol: _ZN3c105ErrorC2ENS_14",
                "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
                "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by x.so)",
                "Could not load library libcudnn_ops_infer.so.8. Error: libcudnn_ops_infer.so.8: "
                "cannot open shared object file",
                "OSError: /usr/lib/libtorch_cuda.so: invalid ELF header",
                "ImportError: /usr/lib/libgomp.so.1: cannot allocate memory in static TLS block",
                "ImportError: DLL load failed while importing _C: The specified module could not be found.",
                "Unable to load any of {libcudnn_ops.so.9.1.0, libcudnn_ops.so.9.1, "
                "libcudnn_ops.so.9, libcudnn_ops.so}",
            ),
            Tier.RESOURCE,
            unless=(
                r"libnvidia-ml|dlerror: libnvinfer|TF-TRT Warning|dso_loader|\bINFO\b"
                r"|libcuda\.so\.1: cannot open[^\n]{0,60}(?:Ignore above|no NVIDIA)|Ignore above"
                r"|cudart dlerror|LD_PRELOAD|ld\.so: object|tcmalloc|falling back|torchvision\.io"
                r"|Failed to load image Python extension"
            ),
        ),
        Signal(
            r"kann die Shared-Object-Datei nicht öffnen"
            r"|impossible d'ouvrir le fichier d'objet partagé|no se puede abrir el (?:fichero"
            r"|archivo) (?:de )?objeto(?:s)? compartido|无法打开共享(?:目标|对象)文件"
            r"|共有オブジェクトファイルを開けません"
            r"|não é possível abrir arquivo (?:de )?objeto compartilhado"
            r"|не удаётся открыть общий объектный файл"
            r"|impossibile aprire il file oggetto condiviso",
            "the loader's message in other languages",
            (
                "ImportError: libcudnn.so.8: Kann die Shared-Object-Datei nicht öffnen: Datei "
                "oder Verzeichnis nicht gefunden",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"numpy\.(?:dtype|ufunc|ndarray) size changed|compiled using NumPy 1\.x cannot be run"
            r"|numpy\.core\.multiarray failed to import|_ARRAY_API not found"
            r"|binary incompatibility|compiled against (?:NumPy )?(?:C-)?(?:API|ABI) version"
            r"|Numpy is not available|RuntimeError: module compiled against"
            r"|multiarray failed to import",
            "a module was compiled against another NumPy",
            (
                "ValueError: numpy.dtype size changed, may indicate binary incompatibility. "
                "Expected 96 from C header, got 88 from PyObject",
                "A module that was compiled using NumPy 1.x cannot be run in",
                "AttributeError: _ARRAY_API not found",
                "RuntimeError: module compiled against ABI version 0x1000009 but this version of numpy is 0x2000000",
                "RuntimeError: Numpy is not available",
            ),
            Tier.RESOURCE,
            says="a compiled module does not fit the installed NumPy",
            advice=("Pin numpy<2 (or the version that the module was built with), or update the module.",),
        ),
        Signal(
            r"'_OpNamespace' '\w+' object has no attribute|object has no attribute '_?C'"
            r"|torch\.ops\.\w+ [^\n]{0,40}(?:not found|has no)|operator \w+::\w+ does not exist"
            r"|Could not run '\w+::\w+' with arguments from the '\w+' backend"
            r"|torchvision::nms does not exist|_C\b[^\n]{0,20}(?:is not available"
            r"|has no attribute)"
            r"|Could not find (?:the )?(?:operator|schema)|Couldn't load custom C\+\+ ops"
            r"|Error loading \S{0,40}(?:_C|extension)|Failed to load (?:the )?(?:C\+\+|CUDA"
            r"|custom) (?:extension|ops|kernel)",
            "an extension's operators are not there: it was not built, or for another version",
            (
                "AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'",
                "RuntimeError: operator torchvision::nms does not exist",
                "NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'CUDA' backend.",
                "RuntimeError: Couldn't load custom C++ ops. This can happen if your PyTorch and "
                "torchvision versions are incompatible",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"cannot find -l\w+|CUDA Setup failed|CUDA_SETUP"
            r"|bitsandbytes was compiled without GPU support"
            r"|libbitsandbytes_c\w+[^\n]{0,80}(?:not found|does not exist|No such file|CUDA)"
            r"|Error building extension|Failed to build (?:installable wheels|\S+ wheel|[\w.-]+$|JIT module"
            r"|\S+ (?:when|from|with))"
            r"|Failed building wheel|subprocess-exited-with-error"
            r"|fatal error: \S{1,60}\.h: No such file"
            r"|command '[^'\n]{0,60}(?:gcc|g\+\+|cc|nvcc)' failed"
            r"|error: linker `?cc|ninja: build stopped|Configured CUDA binary not found",
            "a native part could not be built or was built without GPU support",
            (
                "/usr/bin/ld: cannot find -lcuda: No such file or directory",
                "RuntimeError: CUDA Setup failed despite GPU being available.",
                "RuntimeError: Error building extension 'cpu_adam'",
                "fatal error: Python.h: No such file or directory",
            ),
            strength="likely",
            unless=r"UserWarning|\bINFO\b|\bWARN",
            says="a native part could not be built or linked",
            advice=(
                "Install the compiler, headers or libraries that the message names in the image, or a prebuilt wheel.",
            ),
        ),
        Signal(
            r"(?:PyTorch and torchvision|torch(?:vision|audio)? (?:and|was)|xFormers"
            r"|flash[-_]attn)[^\n]{0,80}(?:incompatible|compiled with (?:a )?different"
            r"|was built for:?|can't load C\+\+/CUDA extensions|different CUDA)"
            r"|xFormers wasn't build with CUDA support|libcudnn[^\n]{0,60}(?:incompatible|version)"
            r"|cuDNN version incompatibility|Loaded runtime CuDNN library",
            "two libraries say that they do not belong together",
            (
                "RuntimeError: cuDNN version incompatibility: PyTorch was compiled against (9, "
                "1, 0) but found runtime version (8, 9, 2).",
                "Loaded runtime CuDNN library: 8.2.4 but source was compiled with: 8.6.0.",
                "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:",
            ),
            Tier.HINT,
            strength="likely",
        ),
        Signal(
            r"(?:Cannot|Could not) load symbol cudnn\w+|CUDNN_STATUS_(?:SUBLIBRARY_)?(?:VERSION_MISMATCH"
            r"|LOADING_FAILED)|CUDNN_STATUS_SUBLIBRARY\w+|cannot load any more object with static TLS",
            "parts of a native library do not fit each other",
            (
                "Invalid handle. Cannot load symbol cudnnCreateTensorDescriptor",
                "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH",
                "dlopen: cannot load any more object with static TLS",
            ),
            strength="likely",
        ),
        Signal(
            r"DNN library initialization failed|Could not create cudnn handle|DNN library is not found",
            "TensorFlow or JAX cannot start cuDNN: another version, or a card without room for its handle",
            ("FailedPreconditionError: DNN library initialization failed.",),
            Tier.HINT,
            strength="possible",
        ),
    ),
)
