"""A device memory request could not be met, whoever asked: framework, BLAS, runtime, TensorRT, ONNX Runtime, ggml."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

RULE = Rule(
    code="cuda_oom",
    fault="capacity",
    retry="maybe",
    because="the GPU ran out of memory[: tried to allocate {tried}][ on GPU {gpu}][, {free} free][ of {total}]",
    details=(
        Detail("tried", r"tried to allocate ([\d.]+ ?[kmgt]?i?b(?:ytes)?)"),
        Detail("gpu", r"\bGPU (\d+) has a total capac"),
        Detail("total", r"total capac(?:i)?ty of ([\d.]+ [KMGT]iB)"),
        Detail("free", r"([\d.]+ [KMGT]iB) (?:is )?free"),
        Detail("size", r"(?:requested buffer of size|calloc|allocating) (\d[\d.]*(?: MiB)?)"),
        Detail("other", r"Process (\d+) has [\d.]+ [KMG]iB memory in use"),
    ),
    advice=(
        "Use a card with more memory, or ask for less: a smaller or quantised model, a shorter context, a smaller batch"
        " or picture.",
        "On vLLM lower --gpu-memory-utilization, --max-model-len or --max-num-seqs; on SGLang lower"
        " --mem-fraction-static.",
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where much memory is reserved but unallocated.",
        "Check what process {other} on the same card is: it holds memory too.",
    ),
    missing=(Missing("the call that failed, at its own line", "CUDA_LAUNCH_BLOCKING=1"),),
    signals=(
        Signal(
            r"(?:CUDA|HIP|XPU|NPU|MUSA|MPS backend) out of memory",
            "the framework's allocator says so",
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of"
                " 23.69 GiB of which 1.20 GiB is free.",
                "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity;"
                " 6.53 GiB already allocated; 12.00 MiB free; 6.60 GiB reserved in total by PyTorch)",
                "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 14.00 GiB.",
                "RuntimeError: NPU out of memory. Tried to allocate 270.00 MiB (NPU 0; 60.97 GiB total capacity)",
                "RuntimeError: MPS backend out of memory (MPS allocated: 17.99 GB, max allowed: 18.13 GB).",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"\b(?:OutOfMemoryError|CUDAOutOfMemoryError|OutOfMemoryException)\b(?!')",
            "an exception of the framework that is raised for device memory only",
            (
                "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)",
                "torch.cuda.OutOfMemoryError: Allocation on device",
            ),
            Tier.RESOURCE,
            unless=(
                r"java\.lang|Container killed|due to memory usage|host memory|CPU memory"
                r"|ray\.exceptions|^\s*except "
            ),
        ),
        Signal(
            r"CUDA(?: driver| runtime)? error:? (?:code=2\()?(?:\d+ )?:? "
            r"?(?:\(?cudaErrorMemoryAllocation|out of memory)",
            "the runtime's own error code for memory",
            (
                "RuntimeError: CUDA error: out of memory",
                "RuntimeError: CUDA driver error: out of memory",
                "CUDA error: out of memory (at ggml-cuda.cu:5066)",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"(?:cuda|cudart|CUDART|hip|NCCL)[\w :()]{0,24}fail(?:ure"
            r"|ed)[ :\d]{0,6}'?(?:with error )?'?(?:: )?out of memory"
            r"|cudaMalloc\w* failed[: ]+(?:with )?out of memory"
            r"|failed to allocate[^\n]{0,60}(?:CUDA\d?|VRAM|device|GPU) (?:buffer|memory)"
            r"|Failed to CUDA (?:m|c)alloc",
            "memory runs out below the framework (rule 3: not a collective error)",
            (
                "node1:1:2 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'",
                "include/alloc.h:185 NCCL WARN Cuda failure 2 'out of memory'",
                "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4156.00 MiB on device 0: "
                "cudaMalloc failed: out of"
                " memory",
                "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 1073741824",
                "NCCL WARN Failed to CUDA calloc 6291456 bytes",
                "CUDA failure 2: out of memory ; GPU=0 ; hostname=abc",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory|CUDNN_STATUS_ALLOC_FAILED"
            r"|CUBLAS_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED|CUSPARSE_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED"
            r"|VK_ERROR_OUT_OF_DEVICE_MEMORY|ErrorOutOfDeviceMemory|UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
            "a status code that means device memory and nothing else",
            (
                "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
                "pycuda._driver.MemoryError: cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY",
                "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to load in-memory CUBIN: "
                "CUDA_ERROR_OUT_OF_MEMORY: out"
                " of memory",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"Failed to allocate memory for requested buffer of size (?P<size>\d+)|BFCArena::AllocateRawInternal"
            r"[^\n]{0,200}(?:Available memory|Failed to allocate)",
            "ONNX Runtime's arena on the card; the words out of memory never appear",
            (
                "onnxruntime::BFCArena::AllocateRawInternal(size_t) Failed to allocate memory "
                "for requested buffer of size"
                " 2830172160",
                "bfc_arena.cc:342 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) "
                "Available memory of 0 is smaller"
                " than requested bytes of 1048576",
            ),
            Tier.RESOURCE,
            unless_near=r"CPUExecutionProvider only",
            says="the GPU ran out of memory[: ONNX Runtime could not get a buffer of {size} bytes]",
        ),
        Signal(
            r"Cuda Error in allocate: 2|\bOutOfMemory\b[^\n]{0,60}(?:Error Code 1|defaultAllocator|Requested size)"
            r"|(?:virtualMemoryBuffer|\w{0,20}Allocator)\.cpp[^\n]{0,160}(?:Error Code 1"
            r"|out of memory)|requested amount of GPU memory"
            r"|Tactic Device request: \d+\w+ Available: \d+",
            "TensorRT's allocator",
            (
                "[TRT] [E] 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)",
                "Requested amount of GPU memory (8589934592 bytes) could not be allocated.",
                "[E] [TRT] ../rtSafe/safeRuntime.cpp (32) - Cuda Error in allocate: 2 (out of memory)",
                "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::127] Error Code 2: "
                "OutOfMemory (Requested size was"
                " 629145600 bytes.)",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"ResourceExhaustedError[^\n]{0,80}OOM|OOM when allocating tensor|RESOURCE_EXHAUSTED: Out of memory"
            r"|RESOURCE_EXHAUSTED: Failed to allocate request|ran out of memory trying to allocate",
            "TensorFlow and JAX name device memory so",
            (
                "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with"
                " shape[64,512,512] and type float on /job:localhost/replica:0/task:0/device:GPU:0",
                "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while "
                "trying to allocate 34359738368"
                " bytes.",
                "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.29GiB",
            ),
            Tier.RESOURCE,
            unless=r"\bon [^\n]{0,60}device:CPU",
        ),
        Signal(
            r"Got an OOM, unloading all loaded models|Not enough memory, use lower resolution|显存不足"
            r"|(?:GPU|VRAM|device|CUDA|video) (?:memory )?(?:is )?(?:insufficient|exhausted"
            r"|not enough)|not enough (?:GPU|VRAM|video|device) memory"
            r"|insufficient (?:VRAM|(?:GPU|video|device|CUDA) memory)|OutOfVideoMemory"
            r"|model requires more system memory than is available on GPU",
            "an application says it in its own words",
            (
                "Got an OOM, unloading all loaded models.",
                "RuntimeError: Not enough memory, use lower resolution (max approx. 1024x1024). "
                "Need: 6.0GB free, Have:5.1GB free",
                "RuntimeError: 显存不足，无法加载模型",
                "ERROR: insufficient GPU memory to load the model",
            ),
            Tier.RESOURCE,
            strength="likely",
            unless=r"(?:KV|state|mamba)[ _-]?cache|auto-?fit",
        ),
        Signal(
            r"(?:out of memory|OOM)[^\n]{0,60}(?:warming up|cuda graph|capture|during (?:prefill"
            r"|decode|generation|inference))"
            r"|(?:warming up|cuda graph)[^\n]{0,80}out of memory|Capture cuda graph failed[^\n]{0,40}out of memory"
            r"|Not enough memory to handle \d+ prefill tokens",
            "an engine that asked the card for its warm-up and did not get it",
            (
                "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
                "Exception: Capture cuda graph failed: CUDA out of memory",
                "RuntimeError: Not enough memory to handle 4096 prefill tokens. You need to decrease"
                " `--max-batch-prefill-tokens`",
            ),
            Tier.RESOURCE,
            says="the GPU ran out of memory while the engine warmed up",
            fault="model_config",
        ),
        Signal(
            r"\bout of memory\b",
            "memory is named, the place is not; on a GPU worker it is usually the card",
            ("llama_model_load: error loading model: unable to allocate backend buffer: out of memory",),
            Tier.HINT,
            strength="possible",
            unless=(
                r"oom[- ]kill|Kill(?:ed)? process|cgroup|host|CPU|DefaultCPUAllocator|might have|java"
                r"|perhaps|Memory cgroup|node|OOM killer"
            ),
        ),
        Signal(
            r"error loading model: unable to allocate (?:CUDA\d?|backend) buffer|unable to allocate CUDA\d buffer"
            r"|failed to allocate compute (?:pp )?buffers|failed to allocate buffer for kv cache",
            "ggml could not get the buffer",
            (
                "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
                "llama_init_from_model: failed to allocate compute pp buffers",
            ),
            Tier.RESOURCE,
            strength="likely",
        ),
        Signal(
            r"CUDNN_STATUS_NOT_INITIALIZED|CUBLAS_STATUS_NOT_INITIALIZED"
            r"|CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
            "a library that cannot get memory for its handle says only this; a bad index before it says it too",
            (
                "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED",
                "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
            ),
            Tier.HINT,
            strength="possible",
            says="a GPU library could not start, which mostly means that the card is full",
        ),
        Signal(
            r"\b(?:VRAM|GPU memory|device memory|video memory|graphics memory)\b",
            "an error that speaks of the card's memory",
            ("RuntimeError: the model needs more GPU memory than this card has",),
            Tier.LAST_RESORT,
            strength="possible",
            errors_only=True,
            unless=r"utilization",
        ),
        Signal(
            r"Out of memory error on GPU|cannot allocate [\d.]+\w+ memory on GPU"
            r"|device memory allocation of size \d+ failed"
            r"|alloc\w* (?:of )?device memory failed|HSA_STATUS_ERROR_OUT_OF_RESOURCES|PI_ERROR_OUT_OF_RESOURCES"
            r"|PI_ERROR_OUT_OF_DEVICE_MEMORY|CallbackErrorOutOfMemory|Insufficient VRAM|enough GPU RAM to fit",
            "other frameworks and drivers: Paddle, Ascend, ROCm, oneAPI, Vulkan, Metal",
            (
                "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 1.2GB memory on GPU 0",
                "ggml_vulkan: Device memory allocation of size 1073741824 failed.",
                "RuntimeError: Malloc device memory failed, size[8589934592], ret[207001]",
                "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you "
                "have enough GPU RAM to fit it",
            ),
            Tier.RESOURCE,
            strength="likely",
        ),
        Signal(
            r"Error Code 2: OutOfMemory|OutOfMemory \(no further information\)|aclrtMalloc\w* failed"
            r"|EL0004: Failed to allocate"
            r"|out_of_memory: CUDA|GPU ?(?:の)?メモリ(?:が)?不足|VRAM ?不足|GPU memory (?:is )?(?:exhausted"
            r"|insufficient)|insufficient GPU memory",
            "an accelerator of another make, or another language",
            (
                "[TRT] [E] 2: [virtualMemoryBuffer.cpp::resizePhysical::140] Error Code 2: "
                "OutOfMemory (no further information)",
                "RuntimeError: aclrtMalloc failed, error code 207001: memory allocation failed "
                "EL0004: Failed to allocate memory",
                "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /rmm/x.hpp",
                "GPU メモリ不足: モデルを読み込めません",
            ),
            Tier.RESOURCE,
            strength="likely",
            unless=r"(?:KV|state|mamba)[ _-]?cache",
        ),
    ),
)
