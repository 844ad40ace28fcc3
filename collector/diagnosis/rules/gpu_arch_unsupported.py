"""The build has no code for this card, or the card lacks a feature that the settings ask for."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="gpu_arch_unsupported",
    fault="dependency",
    retry="no",
    because="the software was not built for this GPU[ ({card})][ (capability {sm})]",
    details=(
        Detail("card", r"^(?:.*?)((?:NVIDIA |Tesla |Quadro )[\w -]{2,40}?) with CUDA capability"),
        Detail("sm", r"CUDA capability (sm_\d+)|compute capability (?:of )?(\d\.\d)"),
    ),
    advice=(
        "Use an image whose framework is built for this card: newer CUDA and torch for newer "
        "cards, older ones for cards that"
        " were dropped.",
        "Or choose another GPU type for the endpoint; a retry on the same type fails the same way.",
    ),
    quotes=True,
    signals=(
        Signal(
            r"no kernel image is available for execution|cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU"
            r"|invalid device function[^\n]{0,40}sm_|HSA_STATUS_ERROR_INVALID_ISA|no kernel image (?:is )?available",
            "the build lacks code for this card (rule 5)",
            (
                "RuntimeError: CUDA error: no kernel image is available for execution on the device",
                "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
            ),
            unless=r"Search for `",
        ),
        Signal(
            r"with CUDA capability sm_\d+ is not compatible|is not compatible with the current PyTorch installation"
            r"|GPU[^\n]{0,60}(?:is )?too old|Found GPU\d? [^\n]{0,80}which is of cuda capability \d\.\d"
            r"|PyTorch no longer supports this GPU because it is too old",
            "torch warns, then kernels fail",
            (
                "NVIDIA GeForce RTX 5080 with CUDA capability sm_120 is not compatible with the "
                "current PyTorch installation.",
                "Found GPU0 Tesla K40c which is of cuda capability 3.5. PyTorch no longer "
                "supports this GPU because it is too old.",
            ),
            Tier.HINT,
            strength="likely",
        ),
        Signal(
            r"(?:only (?:be )?(?:supported|works?|run) (?:on|with)|requires?|needs?|supported on|at least)[^\n]{0,60}"
            r"(?:compute capability|CUDA capability|Ampere|Hopper|Turing|Ada(?: Lovelace)?\b"
            r"|Blackwell|sm_?\d{2,3}|SM ?\d{2})",
            "the card lacks a feature: bf16, fp8, FlashAttention",
            (
                "ValueError: Bfloat16 is only supported on GPUs with compute capability of at "
                "least 8.0. Your Tesla T4 GPU has"
                " compute capability 7.5.",
                "ValueError: fp8e4nv data type is not supported on CUDA arch < 89; requires sm_89 or newer",
                "RuntimeError: torch._scaled_mm is only supported on devices with compute capability >= 9.0 or 8.9",
            ),
            unless=r"\bINFO\b|\bWARN|falling back|fall back|using .{0,40} instead|not available, using",
            fault="model_config",
            says="this GPU lacks a feature that the settings ask for[ (capability {sm})]",
        ),
        Signal(
            r"FlashAttention only supports|fp8e4\w+[^\n]{0,30}not supported|not supported (?:on"
            r"|for) (?:this|the current) (?:GPU|device|architecture)"
            r"|Unsupported (?:GPU|gpu|cuda|CUDA) (?:arch|architecture|capability)|(?:GPU"
            r"|device) (?:arch|architecture|compute capability)[^\n]{0,60}"
            r"(?:is )?not supported|quantization method[^\n]{0,60}is not supported for the "
            r"current GPU|Minimum capability: \d+"
            r"|does not support (?:bfloat16|bf16|fp8)|\bsm_?\d{2,3} is not supported"
            r"|compute cap \d{2,3} is not compatible with compile time"
            r"|ptxas fatal[^\n]{0,20}Value '|TensileLibrary[^\n]{0,80}GPU arch"
            r"|requires device with capability|your GPU has capability \("
            r"|with (?:CUDA |compute )?capability [\d. ]{1,6}(?:is|are) not supported"
            r"|unsupported gpu architecture|nvcc fatal[^\n]{0,20}Unsupported gpu",
            "other words for a card without the feature",
            (
                "ValueError: The quantization method fp8 is not supported for the current GPU. "
                "Minimum capability: 89. Current"
                " capability: 86.",
                "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
                "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
                "ValueError: type fp8e4nv not supported in this architecture. The supported fp8 "
                "dtypes are ('fp8e4b15', 'fp8e5')",
            ),
            tier=Tier.RESOURCE,
            unless=r"\bINFO\b|falling back",
            fault="model_config",
            says="this GPU lacks a feature that the settings ask for",
        ),
        Signal(
            r"do(?:es)? not support efficient \w+ computation|Attempted to use SageAttention on[^\n]{0,40}unsupported"
            r"|the engine plan file is (?:not compatible|generated on an incompatible)"
            r"|incompatible device[^\n]{0,60}(?:compute|engine)|Target GPU SM \d+ is not supported"
            r"|engine[^\n]{0,60}generated on an incompatible device"
            r"|expecting compute \d",
            "a compiled engine was built on another card",
            (
                "[TRT] [E] 6: The engine plan file is generated on an incompatible device, "
                "expecting compute 7.5 got compute 8.6",
                "Error: Target GPU SM 120 is not supported by this TensorRT release.",
            ),
            strength="likely",
        ),
        Signal(
            r"hipErrorNoBinaryForGpu|Unable to find code object for all current devices|(?:CUBLAS"
            r"|CUDNN|CUSPARSE|CUSOLVER)_STATUS_(?:NOT_SUPPORTED_)?ARCH_MISMATCH|requires A100/A800 or H100"
            r"|requires? (?:Hopper|Ampere|Blackwell|Ada)\b|invalid value for --gpu-architecture"
            r"|Cannot select: intrinsic %llvm\.(?:nvvm|amdgcn)|no device code compatible with CUDA arc"
            r"h|No supported kernel for sm_?\d+",
            "the build or the library has nothing for this card",
            (
                "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!",
                "RuntimeError: FlashAttention backward for head dim > 192 requires A100/A800 or H100/H800",
                "nvrtc: error: invalid value for --gpu-architecture (-arch)",
                "CUBLAS_STATUS_ARCH_MISMATCH",
                "ERROR: CUDA kernel flash_attn has no device code compatible with CUDA arch 520",
                "RuntimeError: No supported kernel for sm_120",
            ),
            strength="likely",
        ),
        Signal(
            r"no kernel found to launch|No available kernel\. Aborting"
            r"|No operator found for `memory_efficient_attention|not supported in this architecture",
            "no attention kernel for this card, data type or shape",
            (
                "RuntimeError: cutlassF: no kernel found to launch!",
                "RuntimeError: No available kernel. Aborting execution.",
                "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:",
            ),
            strength="likely",
            says="no attention kernel of the build fits this GPU, data type and shape",
        ),
        Signal(
            r"(?:compiled|built) without (?:support for )?(?:the current GPU|this GPU|your GPU|sm_?\d{2,3})",
            "the build leaves this card out",
            ("ERROR: ggml-cuda was compiled without support for the current GPU architecture",),
            strength="likely",
        ),
        Signal(
            r"only supports? [^\n]{0,40}(?:Hopper|Blackwell|Ampere|\bAda\b|SM ?\d{2}|sm_?\d{2})"
            r"|Error named symbol not found at line",
            "a kernel is for other cards",
            (
                "RuntimeError: DeepGEMM only supports Hopper and Blackwell, found sm_89",
                "Error named symbol not found at line 92 in file /src/csrc/ops.cu",
            ),
            strength="likely",
            unless=r"\bINFO\b|\bWARN|falling back|head dim",
        ),
    ),
)
