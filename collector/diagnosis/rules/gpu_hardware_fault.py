"""The card or its link is broken. Wins over whatever software errors follow (boundary rule 2)."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="gpu_hardware_fault",
    fault="platform",
    retry="yes",
    because="the GPU or its link is faulty[ (Xid {xid})][ at {bus}]",
    details=(
        Detail("xid", r"Xid[^\n:]{0,4}\([^)]{1,40}\):? (\d+)"),
        Detail("bus", r"(?:PCI:|GPU ?)([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})"),
    ),
    advice=(
        "Retry on another host, and keep this one out: the card needs a reset or replacement.",
        "Give the platform the worker id, the GPU's address and this line.",
    ),
    signals=(
        Signal(
            r"uncorrectable (?:NVLink|ECC)|double[- ]bit (?:ECC )?error|cudaErrorECCUncorrectable"
            r"|CUDA_ERROR_ECC_UNCORRECTABLE"
            r"|cudaErrorNvlinkUncorrectable|row remap(?:ping|per)? (?:failure|failed)"
            r"|ECC page retirement|DBE\b[^\n]{0,40}GPU"
            r"|hardware error[^\n]{0,40}GPU|contained ECC error",
            "the card's memory reports errors that it cannot repair",
            (
                "RuntimeError: CUDA error: uncorrectable ECC error encountered",
                "CUDA error: uncorrectable NVLink error detected during the execution",
                "An uncorrectable double bit error (DBE) has been detected on GPU",
            ),
            Tier.HARDWARE,
        ),
        Signal(
            r"\bXid\b[^\n]{0,60}?[:)= ]\s?(?:48|62|63|64|74|79|94|95|119|120|140|143|145|149)\b",
            "an Xid that means hardware; 13, 31, 43 and 45 are program faults and do not count",
            (
                "NVRM: Xid (PCI:0000:07:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error",
                "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
                "kernel: NVRM: Xid (PCI:0000:86:00): 119, pid=2000, name=nvidia-smi, Timeout "
                "after 6s of waiting for RPC response"
                " from GPU0 GSP!",
            ),
            Tier.HARDWARE,
        ),
        Signal(
            r"fallen off the bus|GPU is lost|GPU has been lost|NVML_ERROR_GPU_IS_LOST"
            r"|NVMLError_GpuIsLost|Unable to determine the device handle for"
            r"|GPU requires reset|RmInitAdapter failed|device is lost|VK_ERROR_DEVICE_LOST"
            r"|Reset required|rm_init_adapter failed|amdgpu[^\n]{0,60}GPU reset"
            r"|PCIe Bus Error[^\n]{0,60}Uncorrect",
            "the host cannot reach the card any more",
            (
                "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
                "Unable to determine the device handle for GPU0000:03:00.0: Unknown Error",
                "pynvml.NVMLError_GpuIsLost: GPU is lost",
                "NVRM: RmInitAdapter failed! (0x26:0x56:1474)",
            ),
            Tier.HARDWARE,
            says="the host lost its GPU[ at {bus}]: it does not answer any more",
        ),
        Signal(
            r"GPU compute too slow",
            "the worker's own fitness check; a card that throttles or is shared looks the same",
            ("RuntimeError: GPU compute too slow: Matrix multiply took 900ms (max: 100ms)",),
            Tier.HINT,
            strength="possible",
            says="the GPU is far slower than it should be",
        ),
        Signal(
            r"cudaErrorContained|CUDA_ERROR_CONTAINED|NVML_ERROR_RESET_REQUIRED"
            r"|uncorrectable hardware errors detected|hipErrorECCNotCorrectable|multi-bit ECC error"
            r"|AER: Uncorrected \(Fatal\)|severity=Uncorrected \(Fatal\)",
            "the card, its memory or its link reports an error of its own",
            (
                "cudaErrorContained: Invalid access of peer GPU memory over nvlink or a hardware error",
                "NVML_ERROR_RESET_REQUIRED",
                "amdgpu: uncorrectable hardware errors detected in UMC block",
                "hipErrorECCNotCorrectable",
                "HBM multi-bit ECC error reported on device 0, error code 507053",
                "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0",
            ),
            Tier.HARDWARE,
            strength="likely",
        ),
    ),
)
