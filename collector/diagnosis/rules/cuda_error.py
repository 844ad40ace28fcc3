"""A kernel or runtime call failed on a working, supported card."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

RULE = Rule(
    code="cuda_error",
    fault="dependency",
    retry="maybe",
    because="a GPU kernel or runtime call failed[: {what}]",
    details=(
        Detail("what", r"CUDA (?:runtime |kernel |driver )?error:? (?:\d+ )?(?:\[[^\]]*\])?:? ?([a-z][a-z' -]{6,80})"),
        Detail("what", r"(an illegal memory access was encountered|misaligned address|unspecified launch failure)"),
    ),
    advice=(
        "Run once more with CUDA_LAUNCH_BLOCKING=1: the call that failed is then the one in the traceback.",
        "Update or pin the engine and its kernels (attention, quantisation); an eager mode without custom kernels tells"
        " whether they are to blame.",
    ),
    missing=(Missing("the kernel that failed, at its own line", "CUDA_LAUNCH_BLOCKING=1"),),
    quotes=True,
    signals=(
        Signal(
            r"Assertion `(?P<condition>[^`'\n]{1,200})[`'] failed",
            "a device-side assertion prints the condition that did not hold",
            (
                "../aten/src/ATen/native/cuda/Indexing.cu:1284: indexSelectLargeIndex: block: "
                "[134,0,0], thread: [0,0,0]"
                " Assertion `srcIndex < srcSelectDimSize` failed.",
            ),
            near=r"block: \[|\.cu:\d",
            says="code on the GPU checked [`{condition}`] and found it false: an index is out of range",
            fault="user_code",
            retry="no",
            advice=(
                "Check indices and token ids against the size of the table they go into "
                "(vocabulary, classes, positions).",
                "Run once with CUDA_LAUNCH_BLOCKING=1 to see which call passes them.",
            ),
        ),
        Signal(
            r"device-side assert(?:ion)? triggered|cudaErrorAssert\b",
            "the exception that a device-side assertion ends in",
            ("RuntimeError: CUDA error: device-side assert triggered",),
            says="a check in code on the GPU failed",
            fault="user_code",
            retry="no",
        ),
        Signal(
            r"illegal memory access|cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS"
            r"|misaligned address|cudaErrorMisalignedAddress"
            r"|CUDA_ERROR_MISALIGNED_ADDRESS|illegal instruction was encountered"
            r"|cudaErrorIllegalInstruction|invalid program counter"
            r"|cudaErrorHardwareStackError|Memory access fault by GPU node"
            r"|HSA_STATUS_ERROR_(?:MEMORY_APERTURE_VIOLATION|EXCEPTION)",
            "a kernel used a bad address",
            (
                "RuntimeError: CUDA error: an illegal memory access was encountered",
                "CUDA error 716 [util_device.cuh, 351]: misaligned address",
                "Memory access fault by GPU node-1 (Agent handle: 0x55) on address 0x7f0. Reason: Page not present",
                "cudaErrorIllegalAddress: an illegal memory access was encountered",
            ),
        ),
        Signal(
            r"unspecified launch failure|cudaErrorLaunchFailure|CUDA_ERROR_LAUNCH_FAILED|hipErrorLaunchFailure",
            "a kernel died for a reason that the runtime does not know; a failing card looks the same",
            ("RuntimeError: CUDA error: unspecified launch failure",),
            strength="possible",
        ),
        Signal(
            r"CUDA (?:runtime |driver |kernel )?(?:error|failure"
            r"|Runtime Error)[^\n]{0,60}(?:invalid (?:argument|configuration argument"
            r"|device function|resource handle|device ordinal|value)|too many resources requested"
            r"|operation not (?:permitted|supported)"
            r"|the launch timed out|unknown error|peer access|invalid texture"
            r"|launch out of resources)",
            "a runtime call was refused",
            (
                "RuntimeError: CUDA error: invalid argument",
                "RuntimeError: CUDA error: too many resources requested for launch",
                "RuntimeError: CUDA error: invalid device function",
                "RuntimeError: CUDA error: the launch timed out and was terminated",
            ),
            strength="likely",
            unless=r"compute mode|Cannot re-initialize",
        ),
        Signal(
            r"CUDA error:? ?\(?\d{3}\)?\b|CUDA error \d+ (?:at|\[)|cudaError\w+"
            r"|CUDA_ERROR_(?:INVALID|LAUNCH|ASSERT|NOT_PERMITTED|CONTEXT)\w*"
            r"|CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|NOT_SUPPORTED|MAPPING_ERROR)"
            r"|CUDNN_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|BAD_PARAM|MAPPING_ERROR"
            r"|NOT_SUPPORTED)|CUFFT_INTERNAL_ERROR"
            r"|CUSOLVER_STATUS_(?:INTERNAL_ERROR|EXECUTION_FAILED)|NPU error"
            r"|ACL stream synchronize failed|EZ9999|triton(?:\.runtime)?\.errors"
            r"|Triton Error \[(?:CUDA|HIP)\]|aclnn\w+ (?:failed|error)|error code is (?:507|107|207)\d{3}",
            "a library's kernel failed",
            (
                "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa)`",
                "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
                "ACL stream synchronize failed, error code:507018",
            ),
            strength="likely",
            unless=r"INVALID_PTX|out of memory|device kernel image|provided PTX|PTXASError"
            r"|cudaErrorNoKernelImage|MemoryAllocation|NoDevice|SystemDriverMismatch|ECC"
            r"|InsufficientDriver|DevicesUnavailable"
            r"|StubLibrary|cudaErrorMps|SystemNotReady|InitializationError|InvalidDevice\b|INVALID_DEVICE\b|Contained\b"
            r"|ARCH_MISMATCH|(?:rt|aclrt)SetDevice"
            r"|SymbolNotFound|driver shutting down|Search for `",
        ),
        Signal(
            r"Cannot re-initialize CUDA in forked subprocess",
            "CUDA was used before a fork; set the start method to spawn",
            (
                "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
                "multiprocessing, you must use the"
                " 'spawn' start method",
            ),
            says="CUDA was started before the process was forked, and cannot be used in the child",
            fault="user_code",
            retry="no",
            advice=(
                "Set VLLM_WORKER_MULTIPROC_METHOD=spawn, or "
                "multiprocessing.set_start_method('spawn'), and start no CUDA work"
                " before the workers.",
            ),
        ),
        Signal(
            r"(?:out of resource|OutOfResources): shared memory, Required"
            r"|CUDA error: (?!out of memory)[a-z]|HIP error: |hip error|PTXAS error|ptxas fatal",
            "a kernel could not be built or launched as written",
            (
                "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: "
                "131072, Hardware limit: 101376.",
                "RuntimeError: HIP error: invalid device function",
            ),
            Tier.HINT,
            strength="likely",
            unless=r"no kernel image|ECC|out of memory|busy or unavailable|no CUDA-capable"
            r"|forward compatibility|device kernel image"
            r"|driver version|driver shutting down|provided PTX|system not yet initialized",
        ),
        Signal(
            r"CUDA_ERROR_ILLEGAL_INSTRUCTION|CUDA_ERROR_(?:MISALIGNED_ADDRESS|INVALID_PC|UNKNOWN)"
            r"|CUSPARSE_STATUS_(?:INTERNAL_ERROR|EXECUTION_FAILED|INVALID_VALUE|NOT_SUPPORTED)"
            r"|CUFFT_(?:EXEC_FAILED|INVALID_\w{2,20}|SETUP_FAILED)|CUSOLVER_STATUS_INVALID_VALUE"
            r"|miopenStatus(?:InternalError|UnknownError|BadParm)|rocblas_status_internal_error"
            r"|cudnn_frontend\] Error|GET was unable to find an engine|unable to find an engine to exe"
            r"cute|CUBLAS error \d+ at|cuBLAS error \d+|CUDA Exception: Warp|Warp Illegal"
            r"|CUDA kernel failed ?:|Got cutlass error|kErrorInternal|CURAND_STATUS_(?:LAUNCH"
            r"|INTERNAL)|ErrorDeviceLost|VK_ERROR_DEVICE_LOST|HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY)",
            "a library of the card reports that its work failed",
            (
                "CUDA_ERROR_ILLEGAL_INSTRUCTION",
                "RuntimeError: cuSPARSE error: CUSPARSE_STATUS_INTERNAL_ERROR",
                "RuntimeError: cuFFT error: CUFFT_EXEC_FAILED",
                "MIOpen Error: miopenStatusInternalError",
                "RuntimeError: GET was unable to find an engine to execute this computation",
                "ggml_cuda_op_mul_mat_cublas: CUBLAS error 13 at ggml-cuda.cu:8526",
                "CUDA Exception: Warp Illegal Address",
                "CUDA kernel failed : invalid argument",
                "vk::Queue::submit: ErrorDeviceLost",
            ),
            Tier.HINT,
            strength="likely",
        ),
    ),
)
