"""`/dev/shm` is too small. Beats the collective or the data loader that noticed (boundary rule 3)."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="shm_exhausted",
    fault="platform",
    retry="no",
    because="shared memory (/dev/shm) is too small[: {size} bytes were asked for]",
    details=(Detail("size", r"\(size (\d+)\)|\bsize[ =:]+(\d{4,})"),),
    advice=(
        "Give the container more shared memory: --shm-size=16g, --ipc=host, or a memory-backed volume at /dev/shm.",
        "Where that cannot be set: use num_workers=0 in data loaders, and NCCL_SHM_DISABLE=1.",
    ),
    signals=(
        Signal(
            r"insufficient shared memory \(shm\)|out of shared memory"
            r"|It is possible that dataloader's workers are out of shared memory"
            r"|No space left[^\n]{0,80}(?:/dev/shm|'/?(?:psm|wnsm|torch|sem)[._-])"
            r"|failed to (?:extend|create|allocate|map|mmap|resize|open|truncate) '?/dev/shm/"
            r"|Unable to grow shared memory"
            r"|/dev/shm[^\n]{0,200}(?:No space left|too small|is full|insufficient|Errno 28"
            r"|Cannot allocate|not enough)|creating shared memory segment[^\n]{0,20}/dev/shm"
            r"|unable to (?:mmap|open|allocate|create) [^\n]{0,80}(?:shared memory|/dev/shm"
            r"|torch_\d+)[^\n]{0,80}(?:No space|Cannot allocate|insufficient)"
            r"|Failed to (?:allocate|create|increase) [^\n]{0,40}shared memory[^\n]{0,60}"
            r"|unable to write to file </torch_|shm_?(?:size|open)[^\n]{0,60}(?:No space|too small"
            r"|insufficient)"
            r"|The object store (?:is|uses)[^\n]{0,40}/tmp instead of /dev/shm"
            r"|cannot allocate[^\n]{0,40}shared memory|posix_fallocate[^\n]{0,60}(?:shm"
            r"|shared memory)",
            "the message names shared memory",
            (
                "ERROR: Unexpected bus error encountered in worker. This might be caused by "
                "insufficient shared memory (shm).",
                "Error while creating shared memory segment /dev/shm/nccl-EoOvZr (size 7340384)",
                "RuntimeError: unable to write to file </torch_123_456_0>: No space left on device (28)",
                "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1234'",
                "Failed to initialize Python stub: Failed to increase the shared memory pool "
                'size for key "triton" due to lack of'
                " memory",
            ),
            Tier.RESOURCE,
            unless=r"out of shared memory[^\n]{0,40}(?:Required|Hardware limit)|\bINFO\b",
        ),
        Signal(
            r"killed by signal:? (?:Bus error|7\b|SIGBUS)",
            "a loader's worker that dies of a bus error wrote to a full /dev/shm",
            ("RuntimeError: DataLoader worker (pid 41) is killed by signal: Bus error.",),
            strength="likely",
        ),
        Signal(
            r"(?-i:Bus error)(?: \(core dumped\))?|\bSIGBUS\b|Bus-Zugriffsfehler|erreur de bus|error en el bus"
            r"|总线错误|バスエラー|died with <Signals\.SIGBUS",
            "a bus error is what a write to a full /dev/shm ends in; broken storage and native code end so too",
            ("Bus error (core dumped)",),
            strength="possible",
            unless=r"PCIe|might be caused|ECC",
        ),
        Signal(
            r"unable to allocate shared memory ?\(shm\)",
            "the segment could not be made",
            (
                "RuntimeError: unable to allocate shared memory(shm) for file </torch_77>: Resource "
                "temporarily unavailable (11)",
            ),
            Tier.RESOURCE,
            strength="likely",
        ),
    ),
)
