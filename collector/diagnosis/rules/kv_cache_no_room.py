"""Weights fit, the key/value cache that the settings ask for does not: the engine's own check refuses to start."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="kv_cache_no_room",
    fault="model_config",
    retry="no",
    because="the key/value cache does not fit[: {wanted} tokens asked for, room for {room}][: {needed} "
    "needed, {available}"
    " available]",
    details=(
        Detail("wanted", r"max seq len \((\d+)\)|max_model_len[= ]+(\d+)"),
        Detail("room", r"stored in (?:the )?KV cache \((\d+)\)|estimated maximum model length is (\d+)"),
        Detail("needed", r"\(([\d.]+ GiB) KV cache is needed"),
        Detail("available", r"available KV cache memory \(([\d.]+ GiB)\)"),
        Detail("fits", r"estimated maximum model length is (\d+)|stored in (?:the )?KV cache \((\d+)\)"),
    ),
    advice=(
        "Set --max-model-len {fits} or lower.",
        "Give the engine more of the card: raise --gpu-memory-utilization (vLLM) or --mem-fraction-static (SGLang)"
        " if nothing else runs on it.",
        "Otherwise lower --max-model-len, use a quantised model or --kv-cache-dtype fp8, or a card with more memory.",
        "Do not retry: the same settings fail the same way.",
    ),
    quotes=True,
    signals=(
        Signal(
            r"No available memory for the cache blocks",
            "the engine's own check after profiling",
            (
                "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when"
                " initializing the engine.",
            ),
            Tier.RESOURCE,
            says="nothing was left for the key/value cache after loading the weights[ (available: {available_neg})]",
        ),
        Signal(
            r"max(?:imum)? seq(?:uence)?_?\s?len(?:gth)? \(\d+\)[^\n]{0,60}is larger than the "
            r"maximum number of tokens that can be stored",
            "the context asked for is longer than the cache",
            (
                "ValueError: The model's max seq len (32768) is larger than the maximum number "
                "of tokens that can be stored"
                " in KV cache (17744). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"KV cache is needed, which is larger than the available|larger than the available KV cache memory"
            r"|KV cache (?:memory )?(?:size )?is (?:too small|not (?:enough|sufficient)|insufficient)",
            "newer wording of the same check",
            (
                "ValueError: To serve at least one request with the models's max seq len "
                "(131072), (24.00 GiB KV cache is"
                " needed, which is larger than the available KV cache memory (14.21 GiB). Based "
                "on the available memory,"
                " the estimated maximum model length is 77632.",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"Not enough memory\. Please try (?:to )?increas\w* --mem-fraction-static|max_total_num_tokens[= ]+-\d+"
            r"|max_total_num_token=\s?-\d+|profiled[^\n]{0,40}tokens?[^\n]{0,20}-\d{2,}",
            "SGLang's check",
            (
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
                "max_total_num_tokens=-13023, chunked_prefill_size=8192",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"Not enough memory to (?:allocate|initialize|initialise) (?:the )?(?:KV|kv) ?cache"
            r"|not enough (?:GPU )?memory for (?:the )?kv[ _-]?cache"
            r"|no (?:free )?(?:space|room|memory) (?:left )?for (?:the )?KV cache"
            r"|Insufficient (?:GPU )?memory for (?:the )?KV cache"
            r"|kvCacheManager[^\n]{0,200}(?:Assertion failed|fewer|less)[^\n]{0,80}(?:tokens|blocks|memory)"
            r"|(?:not|no) enough[^\n]{0,60}\bKV[ _-]?cache|max tokens in paged KV cache is 0"
            r"|no enough (?:gpu )?memory for runtime|max_block_count is 0|cannot auto-?fit max_model_len"
            r"|not enough (?:GPU )?memory for [^\n]{0,60}(?:state|mamba)[ _]?cache"
            r"|max_total_num_tokens is (?:negative|0\b)|There is no enough memory for (?:the )?kv ?cache"
            r"|Impossible to fit any sequence in kv ?Cache"
            r"|(?:does not|doesn't|cannot|can't|won't|not) fit (?:in|into) (?:the )?(?:available )?KV[ _-]?cache",
            "other engines' words for the same check",
            (
                "RuntimeError: Not enough memory to initialize KV cache with 4096 tokens",
                "Insufficient memory for KV cache: need 12.0 GiB",
            ),
            Tier.RESOURCE,
            strength="likely",
        ),
        Signal(
            r"GPU KV cache size: 0 tokens|# (?:GPU|CUDA|NPU|cuda) blocks: 0\b|Available KV cache memory: -\d",
            "profiling found nothing to give; an engine that goes on from here fails at once",
            ("INFO gpu_worker.py:298] Available KV cache memory: -2.14 GiB", "# GPU blocks: 0, # CPU blocks: 256"),
            Tier.HINT,
            strength="likely",
        ),
        Signal(
            r"Free memory on device[^\n]{0,80}less than desired GPU memory utilization"
            r"|GPUs may be occupied by other processes",
            "the engine refuses before loading: its share of the card is taken",
            (
                "ValueError: Free memory on device (14.23/15.77 GiB) on startup is less than "
                "desired GPU memory utilization"
                " (0.92, 14.5 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
            ),
            Tier.RESOURCE,
            strength="possible",
            says="the card has less free memory than the share that the engine is told to take",
            advice=(
                "Lower --gpu-memory-utilization, or stop what else holds memory on this card.",
                "Check for a previous engine that still runs on the same card.",
            ),
        ),
        Signal(
            r"(?:Can't|cannot|could not|unable to|failed to) (?:allocate|fit"
            r"|reserve) (?:the )?KV[- ]?cache: not enough|Insufficient KV[- ]?cache (?:space|memory|blocks)"
            r"|CacheManager: no enough blocks|not enough (?:free )?(?:KV )?cache blocks",
            "the cache of other engines",
            (
                "[TensorRT-LLM][ERROR] Assertion failed: Can't allocate KV cache: not enough free "
                "blocks for max sequence length",
                "RuntimeError: Insufficient KV cache space: max_prefill_token_num",
                "[TM][ERROR] CacheManager: no enough blocks for session_len",
            ),
            strength="likely",
            not_phases=("handler",),
        ),
    ),
)
