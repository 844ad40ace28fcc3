"""The host or the platform took the worker away."""

from collector.diagnosis.rules.shape import Missing, Rule, Signal, Tier

RULE = Rule(
    code="terminated_by_platform",
    fault="platform",
    retry="yes",
    because="the platform or host took the worker away",
    advice=(
        "Retry: another worker takes the request.",
        "Make the work resumable, or use machines that are not reclaimed (no spot or "
        "interruptible ones) for long requests.",
    ),
    missing=(
        Missing(
            "which signal ended the process, and when it was told to stop",
            "python -m sdk_exporter -- python handler.py",
        ),
    ),
    signals=(
        Signal(
            r"termination is imminent|\bpreempted\b[^\n]{0,40}\b(?:job|task|instance|node|pod|worker|VM|machine"
            r"|container|host|signal|by|at)\b|\b(?:job|task|instance|node|pod|worker|VM|machine|container)\b[^\n]{0,40}"
            r"\bpreempted\b|^preempt(?:ed|ion)\W{0,2}$|\bpreemption (?:notice|signal|event)"
            r"|spot (?:instance )?(?:interruption|termination|reclaim)|Spot Instance (?:was"
            r"|is) (?:interrupted|reclaimed|terminated)|instance[- ](?:action"
            r"|terminat\w+)[^\n]{0,40}(?:notice|terminat)|Host EC2 [^\n]{0,40}terminated"
            r"|DUE TO (?:PREEMPTION|NODE FAIL(?:URE)?)|Power key pressed"
            r"|System is (?:powering down|rebooting)|The system is going down"
            r"|\b(?:pod|node|container|worker|instance)\b[^\n]{0,60}evicted|Reason:\s{0,20}Evicted|Evicting pod"
            r"|The node had condition"
            r"|TaintManagerEviction|node (?:is )?(?:being )?(?:drained"
            r"|shutting down|shutdown|not ready|lost)|NodeNotReady|NodeShutdown"
            r"|pod (?:was )?(?:deleted|evicted|terminated by)|host (?:is going down|maintenance"
            r"|terminated)|maintenance event|TERMINATE_ON_HOST_MAINTENANCE"
            r"|worker (?:was )?(?:removed|terminated|reclaimed|recycled) by (?:the )?platform"
            r"|outbid",
            "the host or its owner says so",
            (
                "Your instance termination is imminent",
                "slurmstepd: error: *** JOB 42 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO PREEMPTION ***",
                "gpu-worker-1 systemd-logind Power key pressed.",
                "Status reason: Host EC2 (instance i-0abc) terminated.",
                "The node was low on resource, pod was evicted. Reason: Evicted",
            ),
            strength="likely",
            unless=(
                r"PreemptionMode|preemption_mode|FailedScheduling|is preempted by|low on resource: (?:memory|ephemeral)"
                r"|not evicted|KV|cumulative_preemption|Sequence group|num_preempt"
                r"|running low on memory|Power key: |OOM|cache evict|evicted from cache|blocks|LRU"
            ),
        ),
        Signal(
            r"Received (?:15|(?:Signals\.)?SIGTERM) death signal"
            r"|received (?:a )?(?:termination )?(?:signal[: ]*)?(?:SIGTERM|15)\b"
            r"|SignalException: Process \d+ got signal: 15|got (?:signal )?SIGTERM"
            r"|Caught (?:signal )?(?:SIGTERM|15)|SIGTERM received|handling signal: term"
            r"|Handling signal: term|exit(?:ed)? (?:with )?(?:code|status):? ?143\b"
            r"|exited with code 143|signal 15\b|killed by signal:? (?:15|Terminated|SIGTERM)"
            r"|stop request(?:ed)? by the platform|Stopping container|shutdown requested",
            "told to stop from outside; a cause only where no error stands before it",
            (
                "[WARNING] Received 15 death signal, shutting down workers",
                "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 15",
                "worker-1 exited with code 143",
                "Received SIGTERM, shutting down gracefully",
            ),
            Tier.CRASH,
            strength="likely",
            unless=r"sending|closing signal|to (?:child|worker|local)|exit code: -15",
            says="the worker was told to stop from outside (signal 15), with no error before it",
        ),
        Signal(
            r"^(?:.{0,200}\s)?(?:(?-i:Terminated)|Beendet|Complété|Terminado|已终止|終了しました"
            r"|Завершено)(?:\s{2,}\S.{0,200})?$",
            "what a shell prints when its child was ended by signal 15",
            ("Terminated", "/start.sh: line 3:   57 Terminated              python handler.py"),
            Tier.CRASH,
            strength="possible",
            unless=r"killed|successfully|State: ",
            says="the worker was told to stop from outside (signal 15)",
        ),
        Signal(
            r"(?:did not|didn't|failed to) (?:exit|stop|terminate|shut ?down)[^\n]{0,60}(?:grace\b"
            r"|grace period|SIGKILL|killing|be killed|being killed)|grace period (?:expired|exceeded|elapsed)"
            r"|Timed? ?out waiting for (?:container|process|worker) to (?:stop"
            r"|exit)[^\n]{0,30}kill",
            "killed when the grace after a stop request had run out (rule 12)",
            ("Container did not stop within 10s grace period, sending SIGKILL",),
            strength="likely",
            says="the worker was told to stop and killed when it had not ended in time",
        ),
        Signal(
            r"Sending SIGTERM to remaining processes|reboot: (?:Restarting system|Power down)|shutdown\.target",
            "the machine shuts down",
            (
                "systemd-shutdown[1]: Sending SIGTERM to remaining processes...",
                "reboot: Restarting system",
            ),
            Tier.CRASH,
            strength="likely",
        ),
        Signal(
            r"\b(?:instance|worker|node|pod|VM)\b[^\n]{0,30}(?:being|been|was) (?:reclaimed|recycled|preempted)",
            "the host's owner takes it back",
            ("Spot instance is being reclaimed, worker has 30 seconds",),
            strength="likely",
        ),
    ),
)
