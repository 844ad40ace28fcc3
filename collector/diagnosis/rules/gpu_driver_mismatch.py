"""Host driver, container CUDA and user-mode libraries do not fit each other."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="gpu_driver_mismatch",
    fault="platform",
    retry="yes",
    because=(
        "the host's GPU driver does not fit the CUDA of the image[ (driver {driver})][ (image asks for CUDA {cuda})]"
    ),
    details=(
        Detail("driver", r"found version (\d+)|driver version:? (\d[\d.]+)"),
        Detail("cuda", r"cuda>=([\d.]+)"),
    ),
    advice=(
        "Retry on another host.",
        "Restrict the endpoint to hosts whose driver supports the image's CUDA[ ({cuda} or "
        "newer)] (allowed CUDA versions), or"
        " use an image with an older CUDA.",
    ),
    quotes=True,
    signals=(
        Signal(
            r"Error 80[34]|forward compatibility was attempted|cudaErrorSystemDriverMismatch"
            r"|cudaErrorCompatNotSupportedOnDevice"
            r"|system has unsupported display driver|unsupported display driver / cuda driver combination",
            "the compatibility library does not fit the driver",
            (
                "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward "
                "compatibility was attempted on non"
                " supported HW",
                "Error 803: system has unsupported display driver / cuda driver combination",
            ),
        ),
        Signal(
            r"driver/library version mismatch|NVML_ERROR_LIB_RM_VERSION_MISMATCH|kernel (?:version"
            r"|module)[^\n]{0,40}does not match[^\n]{0,40}(?:DSO|driver)"
            r"|API mismatch: the client has the version",
            "user-space libraries were upgraded under a loaded kernel module",
            (
                "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown",
                "Failed to initialize NVML: Driver/library version mismatch",
                "NVRM: API mismatch: the client has the version 535.129.03, but this kernel "
                "module has the version 535.113.01",
            ),
            says="the host's GPU driver libraries and its kernel module are of different versions",
        ),
        Signal(
            r"CUDA driver version is insufficient|driver on your system is too old"
            r"|CUDA_ERROR_(?:UNSUPPORTED_PTX_VERSION|INVALID_PTX)"
            r"|cudaErrorInsufficientDriver|unsatisfied condition: cuda"
            r"|CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
            r"|requires? (?:a )?(?:newer )?NVIDIA driver[^\n]{0,30}(?:newer|>=|at least|\d{3})"
            r"|This container was built for NVIDIA Driver Release|driver (?:is )?too old"
            r"|nvidia driver version[^\n]{0,40}(?:too old|not support)"
            r"|Compute Capability not supported by the driver",
            "the host's driver is older than the image's CUDA",
            (
                "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
                "RuntimeError: The NVIDIA driver on your system is too old (found version "
                "11040). Please update your GPU driver",
                "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, "
                "please update your driver to a newer"
                " version, or use an earlier cuda container: unknown",
            ),
            unless=r"\bWARNING: Detected NVIDIA",
        ),
        Signal(
            r"device kernel image is invalid|cudaErrorInvalidKernelImage"
            r"|provided PTX was compiled with an unsupported toolchain"
            r"|cudaErrorUnsupportedPtxVersion|CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
            r"|CUDA_ERROR_INVALID_IMAGE|unsupported toolchain",
            "the driver cannot read the code that the image brings (rule 5)",
            (
                "RuntimeError: CUDA error: device kernel image is invalid",
                "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
            ),
            says="the host's GPU driver cannot run the code in the image: it is older than the CUDA that built it",
        ),
        Signal(
            r"detected that your system is[^\n]{0,60}driver"
            r"|cudaGetDeviceCount\(\)[^\n]{0,80}(?:driver|Error 3[56])"
            r"|cudaErrorCallRequiresNewerDriver"
            r"|CUDA Version[^\n]{0,40}(?:mismatch|incompatible)[^\n]{0,40}driver"
            r"|driver[^\n]{0,30}incompatible with[^\n]{0,20}CUDA",
            "a version mismatch in other words",
            ("RuntimeError: cudaGetDeviceCount() returned cudaErrorCallRequiresNewerDriver",),
            Tier.HINT,
            strength="likely",
        ),
        Signal(
            r"mismatch[^\n]{0,60}CUDA version[^\n]{0,60}(?:driver|PyTorch)"
            r"|The detected CUDA version \([^)]{1,20}\) mismatches the version",
            "an extension is built with another CUDA than the framework",
            (
                "RuntimeError: The detected CUDA version (12.4) mismatches the version that was "
                "used to compile PyTorch (11.8).",
            ),
            Tier.HINT,
            strength="possible",
            fault="dependency",
            retry="no",
            says="the CUDA toolkit in the image is of another version than the framework was built with",
        ),
        Signal(
            r"CUDA version too old: \d",
            "the worker's own fitness check",
            ("RuntimeError: CUDA version too old: 11.8 found, 12.0 required",),
            strength="likely",
        ),
        Signal(
            r"(?:CUDA_ERROR_|cudaError)Stub_?Library|CUDA driver is a stub library"
            r"|cudaErrorSymbolNotFound: driver|driver entry point \w+ not found|Failed to find a driver supporting CUDA"
            r"|CUDA initialization failure with error: (?:35|803|804)\b|driver version [\d.]+ is older"
            r" than|CUDA_ERROR_COMPAT_NOT_SUPPORTED\w*",
            "the driver in use is not one that this build can work with",
            (
                "cudaErrorStubLibrary: CUDA driver is a stub library",
                "CUDA_ERROR_STUB_LIBRARY",
                "cudaErrorSymbolNotFound: driver entry point cuGetProcAddress not found",
                "Failed to find a driver supporting CUDA 12.8: driver 535.183 supports up to 12.2",
                "[TRT] CUDA initialization failure with error: 35",
                "ImportError: cuda driver version 12.2 is older than the CUDA runtime 12.4",
            ),
            strength="likely",
        ),
    ),
)
