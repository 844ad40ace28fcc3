"""A model, revision, file or local path does not exist where the program looks."""

from collector.diagnosis.rules.shape import Detail, Missing, Rule, Signal, Tier

RULE = Rule(
    code="model_not_found",
    fault="model_config",
    retry="no",
    because="the model or one of its files does not exist where the program looks[: {name}]",
    details=(
        Detail(
            "name",
            r"'namespace/repo_name': '([^']{1,160})'|for url: https?://huggingface\.co/(?:api/models/)?([^\s?]{1,140})",
        ),
        Detail(
            "name",
            r"Value not in list: \w+: '([^']{1,120})'|^(?:\w+\.)*\w+: '?(/[^' ]{2,160})'? is not"
            r"|resource '([^']{1,120})' not found|with name '([^']{1,120})'",
        ),
        Detail(
            "name",
            r"([\w./-]{3,120}) (?:does not appear to have a file|is not a local folder)"
            r"|model '?\"?([\w./:-]{2,100})'?\"? not found",
        ),
    ),
    advice=(
        "Check the model's name and revision, letter for letter, and that the token's account can see it.",
        "For a local path: check that the volume is mounted and the files lie exactly there inside the container"
        " (serverless workers see the network volume at /runpod-volume).",
    ),
    missing=(Missing("where the program looked for the model", "TRANSFORMERS_VERBOSITY=debug"),),
    quotes=True,
    signals=(
        Signal(
            r"RepositoryNotFoundError|Repository Not Found|RevisionNotFoundError"
            r"|EntryNotFoundError(?<!LocalEntryNotFoundError)|Entry Not Found for url"
            r"|Revision Not Found|is not a valid model identifier|Invalid rev id",
            "the hub knows no such repository, revision or file (rule 7)",
            (
                "huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1-6)",
                "huggingface_hub.utils._errors.EntryNotFoundError: 404 Client Error. (Request ID: Root=1-6)",
                "OSError: foo/bar is not a local folder and is not a valid model identifier listed on"
                " 'https://huggingface.co/models'",
                "Repository Not Found for url: https://huggingface.co/api/models/foo/bar.",
            ),
            unless=r"LocalEntryNotFoundError|\bINFO\b|\bDEBUG\b|adapter_config|retry",
            lead=r"40[14] Client Error",
        ),
        Signal(
            r"does not appear to have (?:a|any) files? named|does not appear to have files? named"
            r"|Can't load (?:the )?(?:config|configuration|tokenizer|model|image processor"
            r"|feature extractor|processor|weights)\w* (?:for|of|from)|is not (?:a"
            r"|the) path to a directory containing"
            r"|no file named [\w.]+\b[^\n]{0,60} found in|Error no file named"
            r"|cannot find (?:any )?model weights|Cannot find any model|Unable to (?:find"
            r"|locate) (?:the )?(?:model|weights|checkpoint)|No (?:\.safetensors|safetensors|model"
            r"|weights|checkpoint)s? (?:files? )?(?:weights )?(?:were )?found"
            r"|Can not find[^\n]{0,30}(?:model|checkpoint|weights)|No such (?:model|checkpoint)"
            r"|checkpoint[^\n]{0,80}(?:not found|does(?:n't| not) exist)|model (?:file|path"
            r"|directory|dir|folder)[^\n]{0,120}(?:not found|does(?:n't| not) exist|is missing"
            r"|not exist)"
            r"|(?:could not|couldn't|cannot|can't|unable to|not) find (?:a |the |any )?(?:model"
            r"|checkpoint|weights)\b|Model (?:file )?not found|model \S{1,120} (?:does not exist"
            r"|was not found|not found)|model '[^'\n]{1,100}' not found"
            r"|pull model manifest: file does not exist|Invalid repository ID or local directory"
            r"|weights? (?:file )?not found",
            "the library looked, and the file is not there",
            (
                "OSError: /models/llama does not appear to have a file named config.json.",
                "OSError: Can't load tokenizer for 'foo/bar'. If you were trying to load it from "
                "'https://huggingface.co/models'",
                "RuntimeError: Cannot find any model weights with `/models/llama`",
                "Error: model 'llama3:70b' not found, try pulling it first",
                "ValueError: Invalid repository ID or local directory specified: '/workspace/model'.",
                "FileNotFoundError: Model file /comfyui/models/checkpoints/flux.safetensors not found",
            ),
            unless=(
                r"\bINFO\b|\bDEBUG\b|falling back|processor_config|generation_config"
                r"|adapter_config\.json[^\n]{0,40}warn|Couldn't connect"
            ),
            unless_near=(
                r"couldn't connect to|max retries exceeded|failed to resolve|429 client error"
                r"|too many requests"
            ),
        ),
        Signal(
            r"Repo id must (?:be in the form|use alphanumeric)|HFValidationError",
            "a local path that is not there is taken for a name on the hub",
            (
                "huggingface_hub.errors.HFValidationError: Repo id must be in the form "
                "'repo_name' or 'namespace/repo_name':"
                " '/runpod-volume/model'. Use `repo_type` argument if needed.",
                "HFValidationError: Repo id must use alphanumeric chars or '-', '_', '.', '--' "
                "and '..' are forbidden: ''",
            ),
            says="a local path that does not exist was taken for a name on the hub[: {name}]",
        ),
        Signal(
            r"Value not in list: (?:ckpt_name|vae_name|lora_name|unet_name|clip_name\d?"
            r"|control_net_name|model_name|style_model_name|gligen_name|upscale_model|\w*model\w*"
            r"|\w*ckpt\w*|\w*lora\w*):",
            "ComfyUI has no such file in its model folder (rule 13)",
            ("  - Value not in list: ckpt_name: 'sd_xl_base_1.0.safetensors' not in []",),
            says="the workflow asks for a model file that the worker does not hold[: {name}]",
            fault="caller_input",
            advice=(
                "Put {name} into the model folder of the image or volume, or change the workflow "
                "to a file that is there.",
            ),
        ),
        Signal(
            r"(?:FileNotFoundError|No such file or directory|does not exist"
            r"|not found)[^\n]{0,160}\.(?:safetensors|ckpt|pth?|bin|gguf|onnx|engine|plan|h5|pb"
            r"|trt|model|index\.json|tflite|npz)\b"
            r"|No such file or directory: '[^'\n]{1,160}/(?:config|model_index|tokenizer|tokenizer_config)\.json"
            r"|(?:failed to (?:open|load)|unable to open|cannot open|could not open|error loading"
            r"|Unable to open)[^\n]{0,120}\.(?:safetensors|ckpt|pth?|bin|gguf|onnx|engine|plan|h5"
            r"|trt)\b[^\n]{0,80}(?:No such file|not found|does not exist)"
            r"|gguf_init_from_file: failed to open|NoSuchFile|NO_SUCHFILE|(?:Load model from"
            r"|Opening) \S{1,160} failed[^\n]{0,40}(?:File doesn't exist|doesn't exist)",
            "a weights file is missing",
            (
                "FileNotFoundError: [Errno 2] No such file or directory: "
                "'/models/unet/diffusion_pytorch_model.safetensors'",
                "gguf_init_from_file: failed to open GGUF file '/models/x.gguf' (No such file or directory)",
                "onnxruntime.capi.onnxruntime_pybind11_state.NoSuchFile: [ONNXRuntimeError] : 3 "
                ": NO_SUCHFILE : Load model from"
                " model.onnx failed:Load model model.onnx failed. File doesn't exist",
            ),
            unless=r"\bINFO\b|\.so\b|ffmpeg|ffprobe|\.bin/",
            strength="likely",
        ),
        Signal(
            r"模型(?:文件|路径|权重|目录)?[^\n]{0,24}(?:不存在|未找到|找不到|缺失)|(?:找不到|未找到|无法找到)[^\n]{0,8}模型"
            r"|モデル(?:ファイル)?[^\n]{0,24}(?:見つかりません|存在しません)|모델[^\n]{0,20}찾을 수 없"
            r"|Modell(?:datei|pfad)?\b[^\n]{0,60}nicht gefunden|mod[eè]le[^\n]{0,60}(?:introuvable|n'existe pas)"
            r"|(?:no se encontr[oó]|no existe)[^\n]{0,20} modelo"
            r"|modelo[^\n]{0,40}(?:não (?:foi )?encontrado|no encontrado)"
            r"|(?:файл )?модел[ьи][^\n]{0,40}не найден",
            "the same in other languages",
            (
                "启动失败：模型文件不存在: /models/Qwen2-7B/config.json",
                "Fehler: Modelldatei /models/a.gguf nicht gefunden",
                "FileNotFoundError: modelo não encontrado: /models/a",
            ),
            strength="likely",
        ),
        Signal(
            r"(?:ResourceNotFound|bentoml\.exceptions\.NotFound|\bNotFound)[^\n]{0,60}(?:resource"
            r"|Models? with name|model)|no Models with name|no versions? of model"
            r"|no adapter found for |Invalid model (?:size|name) '[^'\n]{1,80}'|AdapterNotFoundError"
            r"|failed to poll from model repository|Could not find base path|No versions of servable"
            r"|Poll failed for model directory[^\n]{0,120}failed to (?:open|stat)"
            r"|unable to find '[^'\n]{1,120}' for model"
            r"|model not found in (?:repository|registry|store)"
            r"|(?:failed|unable) to stat (?:file )?[^\n]{0,120}model|failed to load model repository"
            r"|RestException: RESOURCE_DOES_NOT_EXIST"
            r"|Registered Model with name=",
            "a model store holds no such entry",
            (
                "bentoml.exceptions.NotFound: no Models with name 'vllm-mistral' found",
                "fs.errors.ResourceNotFound: resource 'vllm-mistral/latest' not found",
                "mlflow.exceptions.RestException: RESOURCE_DOES_NOT_EXIST: Registered Model with name=foo not found",
            ),
        ),
        Signal(
            r"NoSuchKey|NoSuchBucket|\(404\)|AccessDenied|\(403\)|NoCredentialsError"
            r"|Unable to locate credentials",
            "an object that should be fetched is not there or may not be read (rule 9)",
            (
                "botocore.exceptions.ClientError: An error occurred (404) when calling the "
                "HeadObject operation: Not Found",
            ),
            near=(
                r"download_file|download_fileobj|get_object|headobject|getobject|s3\.download"
                r"|from_pretrained|snapshot_download"
            ),
            unless=r"PutObject|UploadPart|CreateMultipartUpload|HTTP/1|GET /|POST /",
            unless_near=r"upload_file|put_object|putobject|uploadpart|s3uploadfailed",
            strength="likely",
            says="an object that should be fetched from storage is not there or may not be read",
        ),
        Signal(
            r"LocalEntryNotFoundError|OfflineModeIsEnabled|outgoing traffic has been disabled"
            r"|cannot find the requested files in the (?:disk|local) cache|couldn't find (?:it"
            r"|them) in the cached files|HF_HUB_OFFLINE",
            "not in the cache, and the hub was not asked or not reached; why is what counts",
            (
                "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files "
                "in the disk cache and outgoing"
                " traffic has been disabled.",
            ),
            Tier.HINT,
            strength="likely",
            unless=(
                r"We couldn't connect|Please check your connection"
                r"|An error happened while trying to locate|\bINFO\b"
            ),
            says="the model's files are not in the cache, and looking them up on the hub is switched off",
            advice=("Unset HF_HUB_OFFLINE, or put the files into the cache (HF_HOME) of the image or volume.",),
        ),
        Signal(
            r"(?:Incorrect path_or_model_id|path_or_model_id|is not a (?:valid )?(?:directory"
            r"|local folder|file or directory)|No such file or directory: '/(?:workspace"
            r"|runpod-volume|models?|data|mnt|root/\.cache|app/models?)[^'\n]{0,160}'?"
            r"|404 Client Error[^\n]{0,100}huggingface\.co)",
            "a path of a model folder, or a 404 of the hub",
            (
                "OSError: Incorrect path_or_model_id: '/runpod-volume/llama'. Please provide "
                "either the path to a local folder or the"
                " repo_id of a model on the Hub.",
                "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: "
                "https://huggingface.co/foo/bar/resolve/main/x",
            ),
            Tier.HINT,
            strength="likely",
            unless=r"\.(?:txt|log|png|jpe?g|mp4|wav|mp3|json|yaml|yml|csv|sh|py|sock)'|\bINFO\b|/venv/|/bin/",
        ),
        Signal(
            r"\b(?:model|checkpoint|weights?|tokenizer|adapter|lora|vae)\b[^\n]{0,80}(?:not found"
            r"|does(?:n't| not) exist|missing|no such|cannot be found)",
            "an error that speaks of a model and says not found",
            ("ValueError: adapter 'style' is missing",),
            Tier.LAST_RESORT,
            strength="possible",
            errors_only=True,
            unless=r"No module named|missing \d+ required",
        ),
        Signal(
            r"Unable to open file '[^'\n]{1,80}' in model '|no model version was found"
            r"|Cannot find any of \['(?:adapter|model|pytorch)|Can't find 'adapter_config"
            r"|KaggleApiHTTPError: 404|Resource not found at URL: https://www\.kaggle"
            r"|engine file \S{1,120} does not exist|(?:weights?|checkpoint"
            r"|model) file \S{1,120} (?:does not exist|not found)",
            "a file of the model is not where it is looked for",
            (
                "RuntimeError: Unable to open file 'model.bin' in model '/models/whisper'",
                "failed to load 'resnet' version 1: no model version was found",
                "RuntimeError: Cannot find any of ['adapter_model.safetensors']",
                "ValueError: Can't find 'adapter_config.json' at '/models/lora'",
                "kagglehub: 404 Client Error. Resource not found at URL: https://www.kaggle.com/models/x",
                "the engine file /engines/rank0.engine does not exist",
            ),
            strength="likely",
        ),
        Signal(
            r"model (?:dir|directory|folder|path) [^\n]{1,120} does(?:n't| not) contain",
            "the folder is there, what it should hold is not",
            ("FileNotFoundError: Model directory /models/tts does not contain a config.yml",),
            strength="likely",
        ),
    ),
)
