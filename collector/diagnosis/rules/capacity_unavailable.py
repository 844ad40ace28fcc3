"""No machine of the kind asked for, or a worker limit of zero."""

from collector.diagnosis.rules.shape import Rule, Signal

RULE = Rule(
    code="capacity_unavailable",
    fault="capacity",
    retry="maybe",
    because="no machine of the kind asked for is free",
    advice=(
        "Allow more GPU types or regions for the endpoint, or keep a minimum of active workers.",
        "Check the endpoint's worker limit, and retry later.",
    ),
    signals=(
        Signal(
            r"Insufficient (?:nvidia\.com|amd\.com|cpu|memory|ephemeral)\S{0,20}|FailedScheduling"
            r"|nodes are available: |not enough free GPUs|no (?:longer any )?(?:instances|GPUs?"
            r"|machines|workers|capacity|resources)[^\n]{0,40}(?:available"
            r"|free)[^\n]{0,60}(?:requested|specif|region|zone|type|currently|host)|(?:No"
            r"|no) (?:available|free) (?:instances|GPUs?|machines|capacity|nodes)"
            r"|InsufficientInstanceCapacity|ZONE_RESOURCE_POOL_EXHAUSTED"
            r"|does not have enough (?:available )?(?:capacity|resources)|out of (?:capacity"
            r"|stock)|insufficient (?:capacity|GPU quota)|quota [^\n]{0,40}(?:GPU|GPUS|instances"
            r"|vCPU)[^\n]{0,40}exceed|insufficient[^\n]{0,20}quota|quota exceeded[^\n]{0,60}(?:GPU"
            r"|instance|vCPU)|workers? (?:are |is )?throttled|(?:max"
            r"|maximum) workers?[^\n]{0,20}(?:is |set to |= ?)0\b"
            r"|SUPPLY_CONSTRAINT|didn't trigger scale-up"
            r"|Pod didn't fit|FailedToScaleUp|Error:? No resource satisfying"
            r"|No available node types can fulfill|Insufficient resources|cannot be scheduled"
            r"|Unschedulable|capacity-not-available|StockOut",
            "the scheduler or the platform says that nothing is free",
            (
                "Warning  FailedScheduling  2s  default-scheduler  0/6 nodes are available: 6 "
                "Insufficient nvidia.com/gpu.",
                "QueryError: There are not enough free GPUs on the host machine to start this pod.",
                "There are no longer any instances available with the requested specifications. "
                "Please refresh and try again.",
                "An error occurred (InsufficientInstanceCapacity) when calling the RunInstances "
                "operation: We currently do not have"
                " sufficient p4d.24xlarge capacity",
                "ray.autoscaler: Error: No available node types can fulfill resource request {'GPU': 1.0}",
            ),
            strength="likely",
            unless=r"RateLimitError|current quota"
            r"|KV|cache|shared memory|disk (?:space|quota|full)|No available (?:memory|block)|DiskPressure only"
            r"|kubelet",
            unless_near=r"back-off pulling",
        ),
        Signal(
            r"(?:There are|are) no longer any instances available|not have the resources to deploy|launchable resource"
            r"|exceeded quota[^\n]{0,160}(?:gpu|accelerator)"
            r"|\b[1-9]\d* (?:workers? )?throttled\b|throttled workers?[:= ]+[1-9]",
            "no machine with all that was asked for, or more cards than the quota allows",
            (
                "There are no longer any instances available with enough disk space.",
                "pods is forbidden: exceeded quota: gpu, requested: requests.nvidia.com/gpu=1",
                "jobs in queue 41, workers: 0 running, 3 throttled",
            ),
            strength="likely",
        ),
        Signal(
            r"Unable to allocate resources|Requested node configuration is not available"
            r"|Resources? (?:are )?temporarily unavailable for",
            "the batch system has no such machine",
            ("srun: error: Unable to allocate resources: Requested node configuration is not available",),
            strength="likely",
        ),
        Signal(
            r"RESOURCE_POOL_EXHAUSTED\w*|VcpuLimitExceeded|SkuNotAvailable|AllocationFailed"
            r"|do not have sufficient capacity|Reason=(?:QOSMax\w+|Resources)\b",
            "a cloud or a batch system has none free",
            (
                "RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
                "VcpuLimitExceeded: You have requested more vCPU capacity",
                "SkuNotAvailable: The requested VM size is currently not available",
                "AllocationFailed: We do not have sufficient capacity for the requested VM size in this region",
                "JobState=PENDING Reason=QOSMaxGRESPerUser",
            ),
            strength="likely",
        ),
    ),
)
