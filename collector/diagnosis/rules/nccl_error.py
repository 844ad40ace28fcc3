"""Collective communication failed or timed out with the cards themselves healthy."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

RULE = Rule(
    code="nccl_error",
    fault="platform",
    retry="maybe",
    because="communication between the GPUs failed[ ({operation}][ after {milliseconds} ms)]",
    details=(
        Detail("operation", r"OpType=(\w+)"),
        Detail("milliseconds", r"(?:ran for|Timeout\(ms\)=)\s?(\d+)"),
    ),
    advice=(
        "Run once with NCCL_DEBUG=INFO: it names the link or call that failed.",
        "Try NCCL_P2P_DISABLE=1 or NCCL_IB_DISABLE=1 to find a broken path; check NCCL_SOCKET_IFNAME.",
        "Look for an earlier failure of another rank: a rank that died makes the others time out.",
    ),
    missing=(Missing("what the ranks said to each other before it", "NCCL_DEBUG=INFO"),),
    quotes=True,
    signals=(
        Signal(
            r"Duplicate GPU detected",
            "two ranks are mapped to one card, which the library refuses",
            ("[rank0]: Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1c000",),
            says="two ranks were put on the same GPU",
            fault="model_config",
            retry="no",
            advice=(
                "Give each rank a GPU of its own: check CUDA_VISIBLE_DEVICES and the number of "
                "processes against the cards.",
            ),
        ),
        Signal(
            r"Watchdog caught collective operation timeout|collective operation timed out"
            r"|Some NCCL operations have failed or timed out"
            r"|Timed out waiting \d+ms for (?:recv|send)|HCCL[^\n]{0,60}tim(?:ed|e) ?out"
            r"|NCCL communicator was aborted|EI0002|EI0006",
            "a collective did not end in time",
            (
                "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=1,"
                " Timeout(ms)=600000) ran for 600029 milliseconds before timing out.",
                "RuntimeError: NCCL communicator was aborted on rank 0.",
            ),
            Tier.HINT,
            strength="likely",
            says="a collective operation between the GPUs did not end in time[ ({operation})]",
        ),
        Signal(
            r"NCCL error[^\n]{0,160}(?:unhandled (?:system|cuda) error|internal error"
            r"|remote process exited|invalid (?:usage|argument)|error)"
            r"|ncclSystemError|ncclInternalError|ncclRemoteError|ncclUnhandledCudaError"
            r"|ncclInvalidUsage|ncclInvalidArgument"
            r"|NCCL failure|RCCL error|HCCL (?:function )?error",
            "the library refused or lost a call; what stands in the lines behind it may name why",
            (
                "torch.distributed.DistBackendError: NCCL error in: "
                "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333,"
                " unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3",
                "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                "RuntimeError: NCCL Error 1: unhandled cuda error",
            ),
            Tier.HINT,
            strength="possible",
        ),
        Signal(
            r"NCCL WARN[^\n]{0,120}(?:Connection closed by remote peer|Connect to [^\n]{3,60} failed"
            r"|Call to (?:connect|ibv_\w+"
            r"|recv|bind)[^\n]{0,60}(?:failed|returned)"
            r"|No socket interface found|Bootstrap : no socket|Net.? IB : Got completion"
            r"|Socket recv failed|unable to find|nvmlDevice|Timeout waiting)"
            r"|connectFullMesh failed|Gloo connectFullMesh"
            r"|third_party/gloo/gloo/transport[^\n]{0,100}(?:Connection|connect|timed out|Timed out)",
            "a link between ranks failed",
            (
                "NCCL WARN socketProgress: Connection closed by remote peer node2<51159>",
                "NCCL WARN Bootstrap : no socket interface found",
                "RuntimeError: Gloo connectFullMesh failed with "
                "[../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
            ),
            Tier.HINT,
            strength="likely",
        ),
        Signal(
            r"DistBackendError|Timed out (?:after \d+ seconds )?waiting for clients|DistStoreError"
            r"|DistNetworkError|The client socket has (?:timed out|failed)"
            r"|barrier timed out|monitoredBarrier|Broken pipe[^\n]{0,40}TCPStore"
            r"|Connection reset by peer[^\n]{0,60}TCPStore"
            r"|failed to recv, got 0 bytes",
            "ranks did not find or lost each other; often a sign that another rank died",
            (
                "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for "
                "clients. 1/2 clients joined.",
                "torch.distributed.DistNetworkError: The client socket has timed out after "
                "600000ms while trying to connect to"
                " (10.0.0.1, 29500).",
            ),
            Tier.LAST_RESORT,
            strength="likely",
            unless=r"terminate called|socket\.cpp|errno: (?:97|99)",
            says="ranks of the job did not find or lost each other",
        ),
        Signal(
            r"ncclUniqueId|setting up NCCL communicator|ncclCommInitRank\w* failed",
            "ranks could not meet to set up the communicator",
            ("RuntimeError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0]",),
            Tier.HINT,
            strength="likely",
            unless=r"\bINFO\b",
            says="ranks of the job did not find or lost each other",
        ),
        Signal(
            r"Got completion from peer [^\n]{0,80}status=|ibv_\w+ failed|nvshmem\w* [^\n]{0,40}failed"
            r"|CUDASymmetricMemory|custom allreduce: failed|failed to open IPC handle",
            "the link between the cards failed",
            (
                "NCCL WARN NET/IB : Got completion from peer 10.0.0.3<47201> with status=12 opcode=0 "
                "len=0 vendor err 129",
                "UCX  ERROR ibv_create_qp failed: Cannot allocate memory",
                "NVSHMEM: nvshmemi_init_thread failed: connect endpoints failed",
                "[symm_mem] CUDASymmetricMemory: custom allreduce: failed to open IPC handle",
            ),
            Tier.RESOURCE,
            strength="likely",
        ),
    ),
)
