"""A sound model that this software version cannot load: architecture, tokenizer format, quantisation, weight names."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

RULE = Rule(
    code="model_unsupported",
    fault="dependency",
    retry="no",
    because="this version of the software cannot load the model[: {what}]",
    details=(
        Detail(
            "what",
            r"model architectures? \[?'?([\w', ]{2,120}?)'?\]? (?:are|is|failed)"
            r"|model type [`'\"]([\w-]{2,60})|unknown model architecture: '([\w-]{2,60})'",
        ),
        Detail(
            "what",
            r"(untagged enum \w+)|KeyError: '([\w.]{2,120})'|unknown quantization (?:method|type):? '?([\w-]{2,40})",
        ),
    ),
    advice=(
        "Update the engine (and transformers, tokenizers) to a version that knows this model, or "
        "choose a model that this version"
        " knows.",
        "Do not retry: the same version fails the same way.",
    ),
    missing=(Missing("which weight or setting of the model it stopped at", "VLLM_LOGGING_LEVEL=DEBUG"),),
    quotes=True,
    signals=(
        Signal(
            r"model architectures? \S{1,200} (?:are|is) not supported"
            r"|architectures? [^\n]{1,120} (?:failed to be inspected|is not supported)"
            r"|does not recognize this architecture|Unrecognized model in"
            r"|unknown model architecture|Unsupported (?:model )?architecture|Unsupported model[ _]type"
            r"|model type [^\n]{1,60}(?:not supported|not recognized|unsupported)"
            r"|model_type [^\n]{1,60}not (?:supported|recognized)|has no vLLM implementation"
            r"|Transformers does not (?:recognize|support)|is not supported (?:by|with|in) (?:vLLM"
            r"|SGLang|TGI|this version|the Transformers|transformers)"
            r"|Unrecognized configuration class|Could not detect model type"
            r"|Model architecture[^\n]{0,80}not (?:supported|implemented)",
            "the engine does not know the architecture",
            (
                "ValueError: Model architectures ['LlamaForSequenceClassification'] are not supported for now.",
                "ValueError: The checkpoint you are trying to load has model type `qwen3` but "
                "Transformers does not recognize this"
                " architecture.",
                "llama_model_load: error loading model: error loading model architecture: "
                "unknown model architecture: 'gemma3'",
                "ValueError: Unrecognized configuration class <class 'x'> for this kind of "
                "AutoModel: AutoModelForCausalLM.",
            ),
            unless=r"\bINFO\b|\bWARN",
        ),
        Signal(
            r"untagged enum (?:ModelWrapper|PyPreTokenizerTypeWrapper|\w+Wrapper)"
            r"|Couldn't instantiate the backend tokenizer|unknown pre-tokenizer type"
            r"|Tokenizer class \S{1,80} does not exist or is not currently imported"
            r"|unknown (?:tokenizer|vocab)(?: type)?|cannot find tokenizer merges"
            r"|error loading model vocabulary|Converting from Tiktoken failed"
            r"|Unable to load tokenizer",
            "the tokenizer file is of another version",
            (
                "Exception: data did not match any variant of untagged enum ModelWrapper at line 277156 column 3",
                "llama_model_load: error loading model: error loading model vocabulary: unknown "
                "pre-tokenizer type: 'deepseek-r1-qwen'",
                "ValueError: Tokenizer class Qwen2Tokenizer does not exist or is not currently imported.",
            ),
        ),
        Signal(
            r"Target modules? [^\n]{1,160} not found in the base model"
            r"|size mismatch for |Missing key\(s\) in state_dict|Unexpected key\(s\) in state_dict"
            r"|Error\(s\) in loading state_dict|unexpected weight"
            r"|weights? (?:of the model )?(?:were"
            r"|was) not initialized from[^\n]{0,60}checkpoint: \{"
            r"|Following weights were not initialized|weight \S{1,120} does not exist"
            r"|Cannot copy out of meta tensor"
            r"|tensor '[^'\n]{1,100}' (?:not found|has wrong shape)|missing tensor"
            r"|wrong number of tensors|check_tensor_dims|done_getting_tensors"
            r"|shape mismatch[^\n]{0,60}(?:weight|param)|There is no module or parameter named"
            r"|\bparam(?:eter)? [^\n]{1,100} not (?:found in (?:\w+ ){0,3}(?:model|module|state|checkpoint|params"
            r"|weights)"
            r"|in params_dict)"
            r"|Attempted to load weight [^\n]{1,120} into parameter",
            "the weights have other names or shapes than the code expects",
            (
                "RuntimeError: Error(s) in loading state_dict for UNet2DConditionModel:",
                "ValueError: There is no module or parameter named 'lm_head.qweight' in Qwen2ForCausalLM",
                "llama_model_load: error loading model: check_tensor_dims: tensor "
                "'blk.0.attn_q.weight' has wrong shape",
                "RuntimeError: weight model.layers.0.self_attn.q_proj.weight does not exist",
            ),
            unless=r"Some weights of|\bWARN|\bINFO\b|newly initialized",
        ),
        Signal(
            r"KeyError: ['\"](?:\w+\.){0,4}(?:layers|blocks|blk|h|encoder|decoder|model"
            r"|transformer|language_model|visual|lm_head|down_blocks|up_blocks|vision_tower"
            r"|experts)\.[\w.]{1,160}['\"]",
            "a weight's name is looked up and not there",
            ("KeyError: 'model.layers.0.self_attn.q_proj.weight'", "KeyError: 'layers.0.mlp.gate_up_proj.qweight'"),
            strength="likely",
        ),
        Signal(
            r"unknown quantization (?:method|type)|quantization (?:method|type|format"
            r"|config)[^\n]{0,80}(?:not supported|unsupported|unknown|does not match|invalid)"
            r"|Cannot find the config file for (?:awq|gptq|\w+)|unsupported (?:quantization|quant\b"
            r"|quant_\w+|ggml type)|quantization_config[^\n]{0,60}not supported|invalid ggml type"
            r"|unsupported (?:GGUF|gguf) (?:version|file)|GGUF[^\n]{0,40}not supported"
            r"|Only 4-bit[^\n]{0,40}supported|QuantizationConfig not found"
            r"|is quantized with \S{1,40} but|ValueError: Quantization method specified in the "
            r"model config",
            "the quantisation is not known here",
            (
                "ValueError: Unknown quantization method: mxfp4. Must be one of ['awq', 'gptq']",
                "ValueError: Quantization method specified in the model config (gptq) does not "
                "match the quantization method specified"
                " in the `quantization` argument (awq).",
                "gguf_init_from_file: tensor 'x' has invalid ggml type 39",
            ),
            unless=r"current GPU|Minimum capability|\bINFO\b|\bWARN",
        ),
        Signal(
            r"rope_scaling` must be a dictionary|rope_scaling|(?:Weights only load failed"
            r"|WeightsUnpickler error|weights_only)|does not support (?:LoRA|multimodal|embedding"
            r"|this model)|\w+Config' object has no attribute '\w+'"
            r"|has no attribute '(?:hidden_size|num_attention_heads|num_hidden_layers|vocab_size"
            r"|head_dim|max_position_embeddings|all_special_tokens_extended)'"
            r"|cannot be loaded with this version"
            r"|incompatible (?:model|checkpoint|tokenizer|engine) (?:version|format)"
            r"|Serialization (?:Error|assertion)[^\n]{0,80}(?:version|magicTag|stdVersion)"
            r"|Version tag does not match|engine (?:was )?built (?:with"
            r"|by) (?:a )?different version|Unsupported model IR version"
            r"|ONNX[^\n]{0,30}opset[^\n]{0,40}(?:not supported|unsupported|only)"
            r"|Op type not registered|Unsupported operator(?! type| '?\w+'? in )",
            "the model's settings or file format are of another version",
            (
                "ValueError: `rope_scaling` must be a dictionary with two fields, `type` and "
                "`factor`, got {'factor': 8.0, 'rope_type':"
                " 'llama3'}",
                "AttributeError: 'Qwen3Config' object has no attribute 'rope_theta'",
                "[TRT] [E] 1: [stdArchiveReader.cpp::StdArchiveReader::42] Error Code 1: "
                "Serialization (Serialization assertion"
                " stdVersionRead == serializationVersion failed.Version tag does not match.",
                "_pickle.UnpicklingError: Weights only load failed. This file can still be loaded",
                "onnxruntime.capi.onnxruntime_pybind11_state.Fail: [ONNXRuntimeError] : 1 : FAIL "
                ": Unsupported model IR version: 11,"
                " max supported IR version: 10",
            ),
            strength="likely",
            unless=(
                r"\bWARN|\bINFO\b|FutureWarning|UserWarning|`weights_only=False`[^\n]{0,40}default"
                r"|rope_scaling=|'rope_scaling':"
            ),
        ),
        Signal(
            r"(?:Cannot import|cannot import|trust[_-]remote[_-]code)[^\n]{0,60}(?:modeling_"
            r"|tokenization_)|No module named 'transformers_modules"
            r"|Expected all tensors[^\n]{0,60}load|Could not (?:load"
            r"|find) model \S{1,100} (?:with any of|in)|(?:ValueError"
            r"|NotImplementedError): [^\n]{0,120}(?:model|architecture"
            r"|tokenizer)[^\n]{0,60}not (?:yet )?(?:supported|implemented)",
            "the software says in its own words that it cannot load the model",
            (
                "ValueError: Could not load model foo/bar with any of the following classes: (<class 'X'>,).",
                "NotImplementedError: The model type chatglm is not yet supported",
            ),
            Tier.HINT,
            strength="likely",
            unless=r"trust_remote_code=True",
        ),
        Signal(
            r"(?:not (?:yet )?(?:supported|implemented|recognized|compatible)|unsupported"
            r"|incompatible)[^\n]{0,60}(?:model|architecture|tokenizer|quantiz|checkpoint|weights)"
            r"|(?:model|architecture|tokenizer|quantiz\w*|checkpoint"
            r"|weights)\b[^\n]{0,80}(?:not (?:yet )?(?:supported|implemented|recognized"
            r"|compatible)|unsupported|incompatible)"
            r"|(?:Rotary\w*|\w+Config|\w+ForCausalLM|\w+Attention|\w+Model)\.__init__\(\) got an unexpected keyword",
            "an error that speaks of a model and says not supported",
            (
                "RuntimeError: this checkpoint format is not supported",
                "TypeError: LlamaRotaryEmbedding.__init__() got an unexpected keyword argument 'rope_type'",
            ),
            Tier.LAST_RESORT,
            strength="possible",
            unless=r"\bWARN|\bINFO\b|GPU|device",
        ),
        Signal(
            r"key not found in model: |json\.exception\.out_of_range\.403\] key '"
            r"|NOT_IMPLEMENTED : Could not find an implementation"
            r"|only \*guarantees\* support for models|No importer registered for op"
            r"|module diffusers has no attribute \w+Pipeline|module transformers has no attribute \w+",
            "the loader does not know what the file holds",
            (
                "llama_model_load: error loading model: error loading model hyperparameters: key not "
                "found in model: qwen9.context_length",
                "onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented: [ONNXRuntimeError] : 9 "
                ": NOT_IMPLEMENTED : Could not find an implementation for Foo(1)",
                "[TRT] [E] ModelImporter.cpp:771: No importer registered for op: Foo",
                "AttributeError: module diffusers has no attribute FooPipeline",
            ),
            strength="likely",
        ),
        Signal(
            r"requires a (?:newer|more recent|later) version of (?:transformers|diffusers|vllm|sglang|tokenizers)"
            r"|(?:please )?(?:upgrade|update) (?:your )?(?:transformers|diffusers|vllm|tokenizers) (?:to|in order"
            r"|version)",
            "the model asks for a newer library",
            ("ValueError: Loading /models/x requires a newer version of transformers",),
            strength="likely",
            unless=r"\bINFO\b|\bWARN",
        ),
        Signal(
            r"checkpoint was saved (?:with|by)|saved with a (?:newer|different|later) version",
            "the file is of another version of the library",
            ("ValueError: Cannot load /x because the checkpoint was saved with peft 0.18",),
            strength="likely",
            unless=r"\bINFO\b|\bWARN",
        ),
    ),
)
