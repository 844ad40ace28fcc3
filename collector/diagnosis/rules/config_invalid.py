"""A setting, flag or environment variable is missing, unknown or contradictory."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

RULE = Rule(
    code="config_invalid",
    fault="model_config",
    retry="no",
    because="a setting is missing or wrong[: {name} is not set][: {problem}]",
    details=(
        Detail(
            "name",
            r"environment variable:? [`'\"]?(\w{2,60})[`'\"]? (?:is )?(?:required|not|must)"
            r"|required for '([^']{1,60})'",
        ),
        Detail(
            "problem",
            r"Value error, ([^\[\n]{4,140})|unrecognized arguments?: ([^\n]{2,100})"
            r"|unexpected argument '([^']{2,80})'|(?:ValueError|AssertionError"
            r"|ValidationError): ([^\n]{4,140})",
        ),
    ),
    advice=(
        "Set {name} in the endpoint's environment.",
        "Correct the setting that the message names; a retry with the same settings fails the same way.",
    ),
    missing=(Missing("the settings that the engine understood", "VLLM_LOGGING_LEVEL=DEBUG"),),
    quotes=True,
    signals=(
        Signal(
            r"environment variable[^\n]{0,80}(?:is (?:required|not (?:set|defined|provided)"
            r"|missing|empty|unset)|not (?:set|found|defined)|must be set|required)|(?:Missing"
            r"|missing) (?:required )?(?:environment|env)(?:ironment)? (?:variable|var)s?"
            r"|(?:is not|must be|not) set in (?:the )?environment|please set (?:the )?(?:env"
            r"|environment|\$?[A-Z_]{4,40})"
            r"|\b(?-i:[A-Z][A-Z0-9]*_[A-Z0-9_]{1,40}) (?:environment variable )?(?:is not set"
            r"|must be set|is required|not set)|unbound variable|parameter (?:null or )?not set"
            r"|KeyError: '(?-i:[A-Z][A-Z0-9]*_[A-Z0-9_]+)'",
            "a variable that the program needs is not set",
            (
                "Environment variable 'HF_TOKEN' is required but not set.",
                "ValueError: MODEL_NAME environment variable is not set",
                "/start.sh: line 7: MODEL_PATH: unbound variable",
                "KeyError: 'BUCKET_ENDPOINT_URL'",
                "RuntimeError: Missing required environment variable: S3_BUCKET",
            ),
            unless=r"CUDA_HOME|\bINFO\b|\bWARN|using default|defaulting|optional|falling back|No bucket endpoint",
            strength="likely",
        ),
        Signal(
            r"attention heads[^\n]{0,60}(?:divisible|tensor parallel)"
            r"|(?:not|be) (?:evenly )?divisible by[^\n]{0,40}(?:parallel|\btp\b|tp_size|world[_ ]size|num_shard"
            r"|ranks?\b)",
            "model and parallel size do not go together",
            ("ValueError: Total number of attention heads (64) must be divisible by tensor parallel size (3).",),
            unless=r"width|height|image size|dimensions?|resolution|height_width",
        ),
        Signal(
            r"\bassert [^\n]{0,80}% ?[\w.]{0,40}(?:tp_size|tensor_parallel|tp_world|world_size|tp_degree)",
            "the same, where an assertion without words is all that is raised",
            ("    assert self.total_num_heads % tp_size == 0",),
            says="model and parallel size do not go together",
        ),
        Signal(
            r"must be divisible by|(?:is not|not) divisible by|cannot be divided|not evenly divisible",
            "two sizes do not go together; while starting both come from the settings",
            ("AssertionError: 151936 is not divisible by 7",),
            unless=r"width|height|image size|dimensions?|resolution|height_width",
            strength="likely",
            not_phases=("handler",),
        ),
        Signal(
            r"trust_remote_code=True|--trust-remote-code|allow_remote_code|contains custom code which must be executed",
            "the model brings code that must be allowed",
            (
                "ValueError: Loading foo/bar requires you to execute the configuration file in "
                "that repo on your local machine. Make"
                " sure you have read the code there to avoid malicious use, then set the option "
                "`trust_remote_code=True` to remove"
                " this error.",
                "The repository for foo/bar contains custom code which must be executed to correctly load the model.",
            ),
            unless=(
                r"\bINFO\b|trust_remote_code=True[,)]|non-default args|Namespace\(|ServerArgs"
                r"|LLM engine|\bvllm serve\b|WARN|python3? -m|'--trust-remote-code'|command:"
            ),
            says="the model brings code of its own, which the settings do not allow to run",
            advice=(
                "Set trust_remote_code=True (--trust-remote-code) if you trust the model's code; pin its revision.",
            ),
        ),
        Signal(
            r"extra_forbidden|Extra inputs are not permitted|Extra fields not permitted|extra fields not permitted",
            "a strict configuration refuses an unknown key",
            ("  Extra inputs are not permitted [type=extra_forbidden, input_value='x', input_type=str]",),
            not_phases=("handler",),
            says="the configuration holds a key that the program does not know",
        ),
        Signal(
            r"a value is required for '|requires a value but none|unrecognized arguments?:|unexpected argument '"
            r"|the following (?:required )?arguments (?:are required|were not provided)"
            r"|invalid choice: |error: argument -|\berror: invalid argument: \S{1,60}$|unknown (?:flag|option"
            r"|argument|shorthand flag)"
            r"|unrecognized option|(?:invalid|illegal) (?:option|value) (?:for )?['\"-]-?"
            r"|No such option|Missing option|invalid value '[^'\n]{0,60}' for '"
            r"|got an unexpected keyword argument '(?:gpu_memory|max_model|tensor_par"
            r"|enforce_eager|quantization|kv_cache)\w*|Got unexpected extra argument"
            r"|bad flag syntax|flag provided but not defined",
            "the command line is refused",
            (
                "error: a value is required for '--model-id <MODEL_ID>' but none was supplied",
                "api_server.py: error: unrecognized arguments: --enable-foo",
                "vllm: error: argument --tool-call-parser: invalid choice: 'foo' (choose from 'hermes')",
                "error: unexpected argument '--flash' found",
                "Error: unknown flag: --ngl",
            ),
        ),
        Signal(
            r"(?:ValueError|AssertionError|RuntimeError|ValidationError|NotImplementedError"
            r"|Exception|Error)\S{0,3}:? [^\n]{0,120}(?:max_model_len|max_num_batched_tokens"
            r"|max_num_seqs|tensor_parallel_size|tensor parallel size|pipeline_parallel"
            r"|gpu_memory_utilization|speculative|max_seq_len_to_capture|block_size|enable_lora"
            r"|max_lora_rank|rope_scaling|kv_cache_dtype|tool_call_parser|reasoning_parser"
            r"|swap_space|served_model_name|chat template|max_loras|enable_auto_tool_choice"
            r"|max-batch-prefill-tokens|max-total-tokens|max-input-(?:tokens|length)|num_shard"
            r"|sharded)"
            r"|User-specified max_model_len|is greater than the derived max_model_len"
            r"|`?max[_-]total[_-]tokens`? (?:cannot be|must be)|`max_input_(?:tokens"
            r"|length)` must be|`?sharded`?[^\n]{0,40}num_shard|cannot be used (?:together )?with"
            r"|(?:are|is) mutually exclusive|incompatible with --|requires --\w",
            "a setting of the engine contradicts the model, the card or another one",
            (
                "ValueError: User-specified max_model_len (32768) is greater than the derived "
                "max_model_len (max_position_embeddings=8192)",
                "ValueError: max_num_batched_tokens (2048) is smaller than max_model_len (4096).",
                'ArgumentValidation("`max_total_tokens` must be > `max_input_tokens`")',
                "ValueError: Invalid value for tensor_parallel_size: 0",
            ),
            strength="likely",
            unless=(
                r"KV cache|cache blocks|out of memory|\bINFO\b|\bWARN"
                r"|longer than the maximum model length|prompt|maximum context length"
                r"|no reasoning parser|requires --gpus|larger than the maximum number of tokens"
            ),
            not_phases=("handler",),
        ),
        Signal(
            r"LoRA rank \d+ is greater than|exceeds? max_lora_rank|max_loras? (?:is|was) exceeded",
            "an adapter asks for more than the engine was started for",
            ("ValueError: LoRA rank 128 is greater than max_lora_rank 16.",),
            strength="likely",
        ),
        Signal(
            r"(?:pydantic\S{0,40}ValidationError|validation errors? for \S*(?:Config|Settings|Args"
            r"|Options|Engine\w*))|(?:yaml|toml|json)\S{0,20}(?:ScannerError|ParserError"
            r"|TOMLDecodeError)|Config(?:uration)?Error|(?:invalid|bad|malformed"
            r"|failed to (?:parse|read|load)) (?:the )?(?:\w{2,30} )?(?:config(?:uration)?|settings)\b(?: file)?"
            r"|ConfigParser|MissingConfigException|omegaconf\.errors|hydra\.errors"
            r"|error parsing (?:config|configuration|yaml)"
            r"|Cannot recognize storage type"
            r"|model configuration specifies|unexpected (?:shape|datatype|data-type) for (?:in|out)put"
            r"|unexpected field|Error parsing text-format|failed to (?:read|parse) (?:text proto"
            r"|model config)|Unknown (?:setting|config(?:uration)? (?:key|option))"
            r"|ImproperlyConfigured|(?:is|are) not a valid (?:setting|option|configuration)",
            "a configuration cannot be read or is refused",
            (
                "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig",
                "yaml.scanner.ScannerError: mapping values are not allowed here",
                "omegaconf.errors.ConfigAttributeError: Missing key model",
                "failed to read text proto from /models/x/config.pbtxt",
            ),
            Tier.HINT,
            strength="likely",
            not_phases=("handler",),
            unless=r"_get_config_dict|hf_config",
        ),
        Signal(
            r"(?:Bfloat16|bfloat16|float16|dtype|torch_dtype)[^\n]{0,60}(?:not supported for"
            r"|must be one of|invalid)|(?:Must|must) be one of (?:\[|\{|the)|Unknown (?:device"
            r"|dtype|backend|scheduler|sampler)|Unsupported (?:device|backend|attention backend"
            r"|VLLM_ATTENTION_BACKEND)|invalid literal for int\(\) with base 10: '[^'\n]{0,40}'"
            r"|could not convert string to float|Invalid attention backend|--gpus requires"
            r"|permission denied|Permission denied|EACCES|Errno 13\b",
            "a value is not one of those allowed, or the process may not use what it is pointed to",
            (
                "ValueError: Unknown device: foo. Must be one of ['cuda', 'cpu']",
                "PermissionError: [Errno 13] Permission denied: '/runpod-volume/cache'",
                "ValueError: invalid literal for int() with base 10: ''",
            ),
            Tier.HINT,
            strength="possible",
            not_phases=("handler",),
            unless=r"exec |OCI|Unknown quantization|entrypoint|/start\.sh|publickey",
        ),
        Signal(
            r"(?: --|`--|'--)[a-z][a-z0-9]+-[a-z0-9]+",
            "an error at start that names a flag",
            ("ValueError: `--max-model-len` must be a positive integer, got 'abc'",),
            Tier.LAST_RESORT,
            strength="possible",
            errors_only=True,
            not_phases=("handler",),
        ),
        Signal(
            r"(?:invalid|unknown|unsupported|missing|required|illegal"
            r"|conflicting)[^\n]{0,60}\b(?:config|configuration|setting|option|flag|argument"
            r"|parameter|variable)s?\b"
            r"|\b(?:config|configuration|setting|option|flag|argument|parameter"
            r"|variable)\b[^\n]{0,60}(?:invalid|unknown|unsupported|missing|required|must"
            r"|conflict)",
            "an error at start that speaks of settings",
            ("ValueError: unsupported option: --foo", "RuntimeError: parameter 'batch' must be positive"),
            Tier.LAST_RESORT,
            strength="possible",
            errors_only=True,
            phases=("boot", "prestart"),
        ),
        Signal(
            r"required flag\(s\)|Missing required (?:argument|option|flag|parameter)s?:? -"
            r"|\[emerg\] (?:unknown directive|invalid)|Check batch related parameters"
            r"|train_batch_size is not equal|invalid reference format",
            "a tool refuses what it was started with",
            (
                'Error: required flag(s) "model" not set',
                "Missing required argument: --model",
                '[emerg] unknown directive "foo" in /etc/nginx/nginx.conf:3',
                "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch",
            ),
            strength="likely",
        ),
        Signal(
            r"chat_template is not set|Unrecognized CachingAllocator option|explicitly set the providers parameter",
            "a library is used without a setting that it needs, or with one that it does not know",
            (
                "ValueError: Cannot use chat template functions because tokenizer.chat_template is not set",
                "RuntimeError: Unrecognized CachingAllocator option: expandable_segment",
            ),
            strength="likely",
        ),
        Signal(
            r"Invalid value for (?-i:[A-Z][A-Z0-9]*_[A-Z0-9_]+)",
            "an environment variable holds what cannot be read",
            ("ValueError: Invalid value for MAX_CONCURRENCY: 'ten'",),
            strength="likely",
            not_phases=("handler",),
        ),
        Signal(
            r"(?:Could not|cannot|failed to|unable to) (?:parse|read) (?-i:[A-Z][A-Z0-9]*_[A-Z0-9_]+)",
            "an environment variable holds what cannot be read",
            ("ValueError: Could not parse LORA_MODULES as JSON: Expecting value",),
            strength="likely",
        ),
    ),
)
