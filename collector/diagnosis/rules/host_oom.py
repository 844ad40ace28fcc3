"""Main memory ran out: the kernel's or the cgroup's killer, or a framework's own guard."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

RULE = Rule(
    code="host_oom",
    fault="capacity",
    retry="maybe",
    because="the machine's main memory ran out[ ({rss} in use)][ (process {victim})]",
    details=(
        Detail("rss", r"(?:anon-rss|total-vm):(\d+ ?kB)"),
        Detail("victim", r"Killed process \d+ \(([\w./-]{1,60})\)"),
    ),
    advice=(
        "Give the worker more main memory, or load less at once: fewer worker processes, no "
        "pinned copies, weights loaded"
        " shard by shard.",
        "Check what the container's memory limit is; model files read into memory count too.",
    ),
    missing=(Missing("whether the kernel counted a kill for memory", "python -m sdk_exporter -- python handler.py"),),
    signals=(
        Signal(
            r"oom[-_ ]kill|Out of memory: Kill(?:ed)? process|Memory cgroup out of memory"
            r"|\bOOMKilled\b|oom_reaper|invoked oom-killer|OOM[- ]Killer"
            r"|killed by the OOM|Detected \d+ oom",
            "the kernel or the container runtime says so",
            (
                "kernel: Out of memory: Killed process 4242 (python3) total-vm:91234567kB, anon-rss:64000000kB",
                "Memory cgroup out of memory: Killed process 12 (python)",
                "    Reason:       OOMKilled",
                "slurmstepd: error: Detected 1 oom_kill event in StepId=1234.batch.",
            ),
            Tier.RESOURCE,
            unless=r"invoked oom-killer|oom-kill:constraint",
        ),
        Signal(
            r"invoked oom-killer|oom-kill:constraint",
            "the kernel begins to look for a victim; the line that names it says more",
            ("kernel: python3 invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0",),
        ),
        Signal(
            r"SIGKILL\(-9\)|(?:sent SIGKILL! )?Perhaps out of memory\?|was sent SIGKILL"
            r"|signaled to shutdown with signal 9|killed by signal:? (?:9|Killed|SIGKILL)"
            r"|terminated by signal (?:9|SIGKILL)"
            r"|terminated with signal (?:SIGKILL|9\b)|died (?:with|from|of|by) (?:signal )?(?:9"
            r"|SIGKILL|<Signals\.SIGKILL)|died with <Signals\.SIGKILL|(?:exit ?code|exitcode"
            r"|returncode|exit status|code):?[ =]*-9\b"
            r"|signal:? ?9\b|\bSignal 9 \(SIGKILL\)|received signal 9|signal: killed|exitcode: -9|exit code:? -9",
            "a kill by signal 9 that nobody asked for is mostly the kernel's (rule 12)",
            (
                "[2024-01-01] [ERROR] Worker (pid:17) was sent SIGKILL! Perhaps out of memory?",
                "Shard process was signaled to shutdown with signal 9 rank=0",
                "RuntimeError: DataLoader worker (pid 1234) is killed by signal: Killed.",
                "failed (exitcode: -9) local_rank: 0 (pid: 20693) of binary: /usr/bin/python",
                "llama runner process has terminated: signal: killed",
            ),
            strength="likely",
            unless_near=(
                r"sigterm[^\n]{0,80}grace|did not (?:exit|stop|terminate)[^\n]{0,60}(?:kill|sigkill)"
                r"|grace period|watchdog timeout|worker timeout|stop[- ]timeout|not responding"
            ),
            says="a process was killed by signal 9, which mostly is the kernel's answer to memory running out",
        ),
        Signal(
            r"^(?:.{0,200}[: ])?(?:\d+ )?(?-i:Killed)(?:\s{2,}\S.{0,300}| ?(?:python|/usr|bash|\./|\().{0,300})?$",
            "what a shell prints when its child died by signal 9",
            (
                "Killed",
                "/start.sh: line 12:    57 Killed                  python -u handler.py",
                "bash: line 1: 14 Killed python app.py",
            ),
            Tier.HINT,
            strength="likely",
            unless=r"killed by user|job killed|request killed",
            says="the process was killed by signal 9, which mostly is the kernel's answer to memory running out",
        ),
        Signal(
            r"^(?:.{0,200}\s)?(?:已杀死|已终止\(killed\)|被杀死|Getötet|Tué|Processus arrêté"
            r"|Terminado \(killed\)|Matado|Morto|Ucciso|Убито|強制終了|Zabity"
            r"|Unicestwiony)(?:\s.{0,300})?$",
            "the same in other languages",
            (
                "./start.sh: Zeile 4:  6516 Getötet                python3 app.py",
                "已杀死",
                "./run.sh: línea 4:  6516 Terminado (killed)      python app.py",
            ),
            strength="likely",
            says="the process was killed by signal 9, which mostly is the kernel's answer to memory running out",
        ),
        Signal(
            r"running low on memory|NODE_OUT_OF_MEMORY|ray\.exceptions\.OutOfMemoryError"
            r"|Workers \(tasks / actors\) killed due to memory pressure|exceeded memory limit"
            r"|memory limit exceeded"
            r"|exceeds? (?:the )?memory limit|KilledWorker|Container killed (?:by"
            r"|on request)[^\n]{0,40}memory|exceeding memory limits",
            "a framework's own guard against memory running out",
            (
                "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
                "Worker exit type: NODE_OUT_OF_MEMORY Worker exit detail: Task was killed",
                "Worker tcp://127.0.0.1:1 exceeded memory limit",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"cannot allocate memory|Errno 12\b|std::bad_alloc|DefaultCPUAllocator: (?:not enough"
            r"|can't allocate) memory|^(?:numpy\S{0,40})?\w{0,20}MemoryError\b"
            r"|Unable to allocate [\d.]+ [KMGTP]iB for an array"
            r"|java\.lang\.OutOfMemoryError|failed to allocate memory|mmap failed: Cannot allocate"
            r"|failed to mmap|OpenBLAS error: Memory allocation|model requires more system memory"
            r"|insufficient (?:host|system|main) memory"
            r"|Not enough (?:host|system|main|CPU) memory|out of host memory"
            r"|host memory (?:is )?exhausted|JavaScript heap out of memory|tcmalloc: large alloc",
            "an allocation of main memory failed",
            (
                "OSError: [Errno 12] Cannot allocate memory",
                "RuntimeError: [enforce fail at alloc_cpu.cpp:114] . DefaultCPUAllocator: can't "
                "allocate memory: you tried to"
                " allocate 1073741824 bytes. Error code 12 (Cannot allocate memory)",
                "terminate called after throwing an instance of 'std::bad_alloc'",
                "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 12.0 GiB for an array with shape (1,)",
                "MemoryError",
                "Error: model requires more system memory (48.0 GiB) than is available (30.1 GiB)",
            ),
            unless=r"CUDA|cuda|GPU|VRAM|smem|device_|pycuda|static TLS|BFCArena|/dev/shm|shm_open|\b[PEZ]iB\b",
            says="the machine's main memory ran out: an allocation failed",
        ),
        Signal(
            r"Nicht genügend Hauptspeicher|Kann nicht genügend Speicher"
            r"|impossible d'allouer de la mémoire|No se pudo asignar memoria"
            r"|No se puede (?:asignar|reservar) memoria|无法分配内存|内存不足|メモリを確保できません"
            r"|Não foi possível alocar memória|Не удалось выделить память|Impossibile allocare memoria",
            "an allocation of main memory failed, in other languages",
            ("OSError: [Errno 12] 无法分配内存", "bash: fork: Nicht genügend Hauptspeicher verfügbar"),
            strength="likely",
            unless=r"显存|GPU|CUDA",
        ),
        Signal(
            r"(?:exited|exit(?:ed)?|terminated|finished|failed"
            r"|returned)[^\n]{0,40}(?:with )?(?:exit )?(?:code|status)[ :=]*137\b"
            r"|exit code:?\s+137|Exit Code:\s+137|Error 137\b|returned 137",
            "137 is a death by signal 9",
            ("webui-docker-1 exited with code 137", "script returned exit code 137", "    Exit Code:    137"),
            strength="likely",
            unless_near=(
                r"(?:received|got|caught|handling) sigterm|grace period|shutting down gracefully"
                r"|stopping container|docker stop|received signal 15"
            ),
            says=(
                "the process was killed by signal 9 (exit code 137), which mostly is the kernel's "
                "answer to memory running out"
            ),
        ),
        Signal(
            r"Container killed due to|killed due to (?:high )?memory|OutOfMemoryError: Container killed",
            "a container service ended it for memory",
            ("OutOfMemoryError: Container killed due to memory usage",),
            Tier.RESOURCE,
        ),
        Signal(
            r"Insufficient memory: [\d.]+ ?[KMG]i?B available",
            "the worker's own fitness check",
            ("RuntimeError: Insufficient memory: 1.20GB available, 4GB required",),
            says="the machine has too little free main memory for the worker to start",
            retry="yes",
        ),
        Signal(
            r"^memory allocation of \d+ bytes failed|\w: memory allocation of \d+ bytes failed"
            r"|runtime: out of memory|exceeded \d+% memory budget|ggml_backend_cpu_buffer\w* failed to"
            r" allocate|cpu_buffer_type_alloc_buffer: failed"
            r"|killed by OOM\b|systemd-oomd\S{0,12} Killed|due to memory pressure|ArrowMemoryError"
            r"|malloc of size \d+ failed|WinError 1455|paging file is too small"
            r"|Cannot allocate memory: cudaHostAlloc|cudaHostAlloc[^\n]{0,40}Cannot allocate",
            "a run time or a guard of the machine says that main memory is gone",
            (
                "memory allocation of 8589934592 bytes failed",
                "polars: memory allocation of 3221225472 bytes failed",
                "fatal error: runtime: out of memory",
                "distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting",
                "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 42949672960",
                "systemd-oomd[640]: Killed /system.slice/worker.service due to memory pressure",
                "pyarrow.lib.ArrowMemoryError: malloc of size 8589934592 failed",
                "OSError: [WinError 1455] The paging file is too small for this operation to complete",
            ),
            Tier.RESOURCE,
            strength="likely",
            unless=r"GPU|CUDA0|VRAM",
        ),
    ),
)
