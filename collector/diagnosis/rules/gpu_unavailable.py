"""No usable device is visible to the process."""

from collector.diagnosis.rules.shape import Missing, Rule, Signal, Tier

RULE = Rule(
    code="gpu_unavailable",
    fault="platform",
    retry="maybe",
    because="no usable GPU is visible to the process",
    advice=(
        "Check that the worker was given a GPU: run nvidia-smi at start-up, and look at CUDA_VISIBLE_DEVICES and"
        " NVIDIA_VISIBLE_DEVICES.",
        "If they are as they should be, retry on another host and report this one.",
    ),
    missing=(Missing("which cards and driver the container sees", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"),),
    quotes=True,
    signals=(
        Signal(
            r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device is detected"
            r"|cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE"
            r"|no NVIDIA GPU(?:s)? (?:was |were )?(?:detected|found|available)"
            r"|No HIP GPUs are available|No NPU(?:s)? (?:is|are) available"
            r"|No GPU (?:was )?(?:found|detected|available)|GPU is not available|No supported GPU"
            r"|no GPU devices? (?:found|available|detected)"
            r"|No XPU devices are available|Torch is not able to use GPU",
            "the runtime counts no device",
            (
                "RuntimeError: No CUDA GPUs are available",
                "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
                "CUDA error: no CUDA-capable device is detected",
                "RuntimeError: Torch is not able to use GPU; add --skip-torch-cuda-test to COMMANDLINE_ARGS variable",
                "torch.AcceleratorError: CUDA error: no CUDA-capable device is detected",
            ),
            unless=r"\bINFO\b|using CPU|falling back to CPU|WARNING:? .{0,40}CPU",
        ),
        Signal(
            r"could not select device driver[^\n]{0,40}capabilities"
            r"|nvidia-container-cli:[^\n]{0,80}(?:load library failed|no such device|no devices?"
            r"|device error|driver error|driver not loaded|nvml error"
            r"|failed to (?:open|process)|unknown device|libnvidia-ml|no adapters were found)"
            r"|failed to inject CDI devices|unresolvable CDI devices"
            r"|unknown or invalid runtime name: nvidia|unknown runtime specified nvidia"
            r"|No devices were found|Failed to initialize NVML: (?:Unknown Error|Driver Not Loaded"
            r"|GPU access blocked)"
            r"|NVIDIA-SMI has failed because it couldn't communicate"
            r"|couldn't communicate with the NVIDIA driver|NVML: Driver Not Loaded"
            r"|NVMLError_DriverNotLoaded"
            r"|NVMLError_LibraryNotFound|NVML Shared Library Not Found",
            "the container runtime or the management library finds none",
            (
                'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
                "nvidia-container-cli: initialization error: load library failed: "
                "libnvidia-ml.so.1: cannot open shared object file",
                "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
                "Failed to initialize NVML: Unknown Error",
                "pynvml.NVMLError_LibraryNotFound: NVML Shared Library Not Found",
            ),
            unless=r"version mismatch|unsatisfied condition|requirement error",
        ),
        Signal(
            r"device(?:\(s\) is/are|s? (?:is|are)) busy or unavailable|cudaErrorDevicesUnavailable"
            r"|CUDA_ERROR_DEVICE_UNAVAILABLE|cudaErrorDeviceUnavailable",
            "the card is there and given to somebody else, or in an exclusive mode",
            ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",),
            says="the GPU is busy or withheld: another process holds it, or its compute mode is exclusive",
        ),
        Signal(
            r"No platform detected|Failed to infer device type|Device string must not be empty"
            r"|Triton is not supported on current platform[^\n]{0,40}no GPU",
            "the engine found no device of any kind",
            (
                "INFO 08-30 06:18:02 [__init__.py:243] No platform detected, vLLM is running on UnspecifiedPlatform",
                "RuntimeError: Failed to infer device type",
            ),
        ),
        Signal(
            r"Torch not compiled with CUDA enabled|torch\.cuda\.is_available\(\) is False"
            r"|CUDA is not available|CUDA (?:was |is )?not (?:found|detected|available)"
            r"|Attempting to deserialize object on a CUDA device but",
            "the framework cannot use a card; the wheel may be for CPU only",
            (
                "AssertionError: Torch not compiled with CUDA enabled",
                "RuntimeError: Attempting to deserialize object on a CUDA device but "
                "torch.cuda.is_available() is False.",
            ),
            strength="likely",
            unless=r"\bINFO\b|using CPU|falling back to|warnings\.warn|UserWarning|FutureWarning|Defaulting to",
        ),
        Signal(
            r"CUDA error: invalid device ordinal|cudaErrorInvalidDevice|invalid device ordinal"
            r"|invalid device id|system not yet initialized"
            r"|cudaErrorSystemNotReady|Error 802"
            r"|CUDA unknown error - this may be due to an incorrectly set up environment"
            r"|Invalid CUDA 'device=\d",
            "fewer devices are visible than the program asks for, or the fabric is not up",
            (
                "RuntimeError: CUDA error: invalid device ordinal",
                "Error 802: system not yet initialized",
                "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment",
            ),
            strength="likely",
            says="the device that the program asks for is not visible to it",
        ),
        Signal(
            r"expected \d+ GPU\(?s?\)?[^\n]{0,40}(?:found|only|got|available)|(?:world size"
            r"|tensor[_ -]parallel[_ -]size)[^\n]{0,60}(?:larger|greater"
            r"|more) than[^\n]{0,40}(?:available|number of) GPUs?"
            r"|current node has no GPU available|required (?:number of )?GPUs?[^\n]{0,40}but (?:only )?\d",
            "more cards are asked for than the worker has",
            (
                "ValueError: World size (4) is larger than the number of available GPUs (1) in this node.",
                "ValueError: Current node has no GPU available. current_node_resource={'CPU': 8.0}.",
            ),
            Tier.HINT,
            strength="possible",
            says="the program asks for more GPUs than the worker has",
            fault="model_config",
            retry="no",
        ),
        Signal(
            r"The NVIDIA Driver was not detected|(?:no|cannot find|not find|could not find"
            r"|requires?(?: an?)?|without an?) (?:any )?(?:NVIDIA |CUDA |compatible )*(?:GPUs?"
            r"|CUDA devices?)\b",
            "words for no card",
            (
                "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.",
                "RuntimeError: could not find any CUDA device",
            ),
            Tier.LAST_RESORT,
            strength="possible",
            unless=r"\bINFO\b|supported",
        ),
        Signal(
            r"Unable to initialize backend '(?:cuda|gpu|rocm|tpu)'|Unknown backend:? '(?:cuda|gpu|rocm|tpu)'"
            r"|does not allocate any GPUs on the driver node",
            "a framework that was told to use a card finds none",
            ("RuntimeError: Unable to initialize backend 'cuda': FAILED_PRECONDITION: No visible GPU devices.",),
            strength="likely",
            unless=r"\bINFO\b|\bWARN|\bDEBUG",
        ),
        Signal(
            r"GPU health check failed|GPU memory allocation test failed|GPU test binary (?:timed out|execution failed)"
            r"|No GPUs detected by nvidia-smi|No CUDA devices available|Failed to initialize GPU \d",
            "the worker's own fitness check found no card that works",
            (
                "RuntimeError: GPU health check failed. Binary test: x. Fallback test: nvidia-smi timed out",
                "RuntimeError: No GPUs detected by nvidia-smi",
            ),
            strength="likely",
            retry="yes",
            says="the worker's own check found no GPU that works",
        ),
        Signal(
            r"CUDA error: initialization error|CUDA_ERROR_NOT_INITIALIZED"
            r"|cudaErrorInitializationError|CUDA_ERROR_INVALID_DEVICE\b"
            r"|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY|(?:CUDA_ERROR_MPS_"
            r"|cudaErrorMps)\w+|CUDA_ERROR_OPERATING_SYSTEM"
            r"|no ROCm-capable device|hipErrorNoDevice|NVML: Insufficient Permissions"
            r"|NVML_ERROR_NO_PERMISSION|NVMLError_(?:NoPermission|NotFound|Uninitialized)"
            r"|failed to create NVML client|No (?:accelerator|TPU|NPU|XPU|HPU)s? (?:\([^)\n]{0,40}\) )"
            r"?(?:devices? )?(?:is |are |was )?(?:available|found|detected)"
            r"|Can't get ascend device|drvGetDevNum failed|rtSetDevice failed|aclrtSetDevice\("
            r"|dcmi model initialized failed|Unable to open /dev/kfd|no AMD GPU (?:detected|found)"
            r"|failed call to cuInit|no nvidia devices detected"
            r"|could not open /dev/nvidia\w*|Failed to open /dev/nvidia\w*|Module nvidia not found"
            r"|vulkan: No devices found|vkCreateInstance: Found no drivers|no supported devices found for platform",
            "a driver of whatever make finds no card that it may open",
            (
                "CUDA_ERROR_NOT_INITIALIZED: initialization error",
                "cudaErrorMpsServerNotReady: the MPS server is not ready to accept new MPS client requests",
                "hipErrorNoDevice: no ROCm-capable device is detected",
                "Failed to initialize NVML: Insufficient Permissions",
                "RuntimeError: Can't get ascend device: drvGetDevNum failed",
                "Unable to open /dev/kfd read-write: Permission denied",
                "failed call to cuInit: UNKNOWN ERROR (303)",
                "RuntimeError: No accelerator (CUDA, XPU, HPU) is available",
                "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0",
                "Failed to open /dev/nvidia0: Operation not permitted",
                "RuntimeError: Unable to initialize backend 'cuda': INTERNAL: no supported devices "
                "found for platform CUDA",
            ),
            strength="likely",
            unless=r"out of memory|falling back to (?:the )?CPU|Xid|busy or unavailable",
        ),
        Signal(
            r"you might not have a CUDA gpu|CUDA driver initialization failed",
            "the framework cannot start the driver",
            ("RuntimeError: CUDA driver initialization failed, you might not have a CUDA gpu.",),
            strength="likely",
        ),
        Signal(
            r"device_count\(\) returned 0|(?:CUDA|GPU) is required but",
            "the program counts no device",
            ("AssertionError: CUDA is required but torch.cuda.device_count() returned 0",),
            strength="likely",
        ),
    ),
)
