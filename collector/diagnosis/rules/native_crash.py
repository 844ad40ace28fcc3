"""Native code died by a signal or a heap check, and nothing more specific explains it."""

from collector.diagnosis.rules.shape import Missing, Rule, Signal, Tier

RULE = Rule(
    code="native_crash",
    fault="dependency",
    retry="maybe",
    because="native code crashed",
    advice=(
        "Set PYTHONFAULTHANDLER=1: the next crash prints the Python stack it came from.",
        "Pin or change the native packages that were updated last (attention, quantisation, "
        "tokenizer, media libraries).",
    ),
    missing=(Missing("the Python lines that the crash was called from", "PYTHONFAULTHANDLER=1"),),
    signals=(
        Signal(
            r"Segfault encountered",
            "the framework's own notice, behind which the interpreter says the same in its words",
            ("!!!!!!! Segfault encountered !!!!!!!",),
            Tier.REPORT,
            strength="likely",
            says="native code crashed with a segmentation fault (signal 11)",
        ),
        Signal(
            r"Segmentation fault|status=11/SEGV|\bSIGSEGV\b|segfault at|signal 11\b|signal: 11\b"
            r"|\(exit ?code:? -11\)|exit ?code:? -11\b|died with <Signals\.SIGSEGV"
            r"|Signal: Segmentation"
            r"|terminated with signal (?:SIGSEGV|11\b)|return ?code[ =:]*-11\b"
            r"|exit ?code[ =:]*-11\b|code 139\b|exit (?:code|status):?\s+139|code=139",
            "a segmentation fault",
            (
                "Segmentation fault (core dumped)",
                "Fatal Python error: Segmentation fault",
                "cog.server.exceptions.FatalWorkerException: Prediction failed for an unknown reason. (exitcode -11)",
                "worker-1 exited with code 139",
            ),
            Tier.CRASH,
            strength="likely",
            says="native code crashed with a segmentation fault (signal 11)",
        ),
        Signal(
            r"(?:malloc|free|realloc|munmap_chunk|calloc)\(\): |malloc\(\)[^\n]{0,40}corrupt"
            r"|corrupted (?:size|double-linked|unsorted)|double free or corruption"
            r"|invalid pointer\b|stack smashing detected"
            r"|heap corruption|malloc_consolidate|buffer overflow detected|invalid next size|chunk_main_arena",
            "the C library's heap check",
            (
                "malloc(): smallbin double linked list corrupted",
                "free(): invalid pointer",
                "corrupted size vs. prev_size",
                "double free or corruption (!prev)",
                "*** stack smashing detected ***: terminated",
            ),
            Tier.CRASH,
            strength="likely",
            says="native code damaged its own memory (the C library's heap check stopped it)",
        ),
        Signal(
            r"signal(?:ed to shutdown with signal)? 4\b|Illegal instruction|\bSIGILL\b"
            r"|ungültiger Maschinenbefehl|instruction illégale|instrucción ilegal|非法指令|code 132\b"
            r"|exitcode:? -4\b|died with <Signals\.SIGILL",
            "an instruction that this CPU does not know",
            ("Illegal instruction (core dumped)", "Shard process was signaled to shutdown with signal 4 rank=0"),
            Tier.CRASH,
            strength="likely",
            unless=r"illegal instruction was encountered",
            says="native code used an instruction that this machine's CPU does not know (signal 4)",
            fault="platform",
            retry="no",
            advice=(
                "Use hosts with a newer CPU, or a build without the instruction set (AVX2, AVX-512) that it needs.",
            ),
        ),
        Signal(
            r"Speicherzugriffsfehler|Erreur de segmentation|Violación de segmento"
            r"|段错误|段錯誤|セグメンテーション|Falha de segmentação|Errore di segmentazione"
            r"|Ошибка сегмент\w+|Naruszenie ochrony pamięci",
            "a crash in other languages",
            (
                "./run.sh: Zeile 3: 42 Speicherzugriffsfehler  (Speicherabzug geschrieben) python3 app.py",
                "段错误 (核心已转储)",
            ),
            Tier.CRASH,
            strength="likely",
        ),
        Signal(
            r"\bSIGABRT\b|status=6/ABRT|Signal: Aborted|Fatal Python error: Aborted|Aborted \(core dumped\)"
            r"|^(?:.{0,120} )?(?-i:Aborted)(?: +\S.{0,120})?$|code 134\b|exitcode:? -6\b"
            r"|signal 6\b|^Abortado|^Abgebrochen|^Abandon\b|已放弃"
            r"|Floating point exception|terminate called (?:after throwing|without an active)"
            r"|pure virtual method called|Fatal Python error: (?!Segmentation|Aborted)"
            r"|\(core dumped\)|unrecoverable (?:native )?error|SIGFPE|SIGTRAP|Trace/breakpoint trap"
            r"|`core' generado|核心已转储|コアダンプ|Speicherabzug geschrieben|imagem do núcleo gravada"
            r"|core dump creato|стек памяти сброшен",
            "an abort: the reason stands before it, if anywhere",
            (
                "Aborted (core dumped)",
                "terminate called after throwing an instance of 'std::runtime_error'",
                "Fatal Python error: none_dealloc: deallocating None",
                "Floating point exception (core dumped)",
            ),
            Tier.CRASH,
            strength="possible",
            unless=r"transaction|bad_alloc|request",
            says="native code aborted",
        ),
        Signal(
            r"panicked at|^panic: |SIGSEGV: segmentation violation|fatal error: unexpected signal"
            r"|GGML_ASSERT|ggml_abort|\bcheck failed: |Check failed: |Internal error: Oops"
            r"|INTERNAL ASSERT FAILED|LLVM ERROR",
            "a failed check in native code",
            (
                "GGML_ASSERT: ggml.c:3000: n_dims >= 1",
                "thread 'main' panicked at src/main.rs:10:5: index out of bounds",
                'RuntimeError: false INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":1234',
            ),
            Tier.CRASH,
            strength="possible",
            unless_near=r"panicexception",  # what the panic was made into says it
            says="a check in native code failed",
        ),
        Signal(
            r"access violation|0xC0000005|-1073741819|3221225477|0xC0000409|-1073740791|EXCEPTION_ACCESS_VIOLATION",
            "a crash as Windows reports it",
            (
                "Process finished with exit code -1073741819 (0xC0000005)",
                "OSError: exception: access violation reading 0x0",
            ),
            Tier.CRASH,
            strength="likely",
            says="native code crashed with an access violation",
        ),
        Signal(
            r"unexpected fault address|has overflowed its stack|detected by the Java Runtime Environment",
            "a run time caught the crash",
            (
                "unexpected fault address 0x0",
                "thread 'main' has overflowed its stack",
            ),
            Tier.CRASH,
            strength="likely",
        ),
        Signal(
            r"malloc\.c:\d+: \w+: Assertion|\bsysmalloc: Assertion",
            "the heap's own check failed",
            ("python: malloc.c:2617: sysmalloc: Assertion `(old_top == initial_top (av) && old_size == 0)' failed.",),
            Tier.CRASH,
            strength="likely",
            says="the heap was found corrupted",
        ),
        Signal(
            r"terminating (?:due to|with) uncaught exception",
            "a native exception that nobody caught",
            ("libc++abi: terminating due to uncaught exception of type std::out_of_range: vector",),
            Tier.CRASH,
            strength="likely",
        ),
    ),
)
