"""The image cannot be pulled, or its entry point cannot be run."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="image_start_failed",
    fault="user_code",
    retry="no",
    because="the container could not start[: {program} cannot be run]",
    details=(
        Detail(
            "program",
            r"exec:? \"?'?([\w./-]{1,120}?)\"?'?(?: failed)?: (?:exec format|no such file|No such"
            r"|permission|executable|stat)",
        ),
        Detail("image", r"image:? \"([\w./:@-]{2,200})\""),
    ),
    advice=(
        "Check the start command and entry point: {program} has to exist in the image, be "
        "executable and have Unix line ends.",
        "Build the image for the host's architecture (docker build --platform linux/amd64).",
    ),
    quotes=True,
    signals=(
        Signal(
            r"exec format error|Failed at step EXEC spawning|chdir to cwd \("
            r"|cannot execute binary file|Exec format|exec user process caused|standard_init_linux",
            "the program is for another architecture or has no interpreter line",
            (
                "exec /start.sh: exec format error",
                "standard_init_linux.go:228: exec user process caused: no such file or directory",
            ),
            says=(
                "the image's program cannot be run on this machine: wrong architecture, or a script "
                "without its interpreter"
            ),
        ),
        Signal(
            r"(?:^|[\s\]:])exec:? \S{1,140}:? ?(?:failed: )?(?:stat [^\n]{1,100}: )?(?:no such "
            r"file or directory|permission denied|not found)|executable file not found in \$PATH"
            r"|(?:unable to start container process"
            r"|starting container process caused)[^\n]{0,120}exec|exec \S{1,100} failed: "
            r"|error mounting|not a directory: unknown|RunContainerError"
            r"|CreateContainer(?:Config)?Error|no such file or directory: unknown"
            r"|entrypoint[^\n]{0,40}(?:not found|permission denied|no such file)"
            r"|\\r': (?:command not found|No such file)|/\S{0,80}(?:start|entrypoint|run"
            r"|handler)\S{0,20}: Permission denied|\^M: bad interpreter|bad interpreter: ",
            "the entry point is not there or may not be run",
            (
                "exec /start.sh: no such file or directory",
                "[FATAL tini (7)] exec FROM failed: No such file or directory",
                "docker: Error response from daemon: failed to create task for container: failed "
                "to create shim task: OCI runtime create"
                ' failed: runc create failed: unable to start container process: exec: "python": '
                "executable file not found in $PATH: unknown.",
                "/bin/bash^M: bad interpreter: No such file or directory",
                "exec /entrypoint.sh: permission denied",
            ),
            unless=r"nvidia-container-cli|device driver|CDI",
            unless_near=r"nvidia-container-cli: |could not select device driver|failed to inject cdi",
        ),
        Signal(
            r"ImagePullBackOff|ErrImagePull|Failed to pull image|toomanyrequests\\b"
            r"|pull access denied|manifest (?:for \S+ )?(?:unknown|not found)|manifest unknown"
            r"|failed to (?:pull|resolve|unpack|register|extract) (?:and unpack )?(?:image"
            r"|reference|layer)|InvalidImageName|invalid reference format|No such image"
            r"|no matching manifest|failed to copy: httpReadSeeker"
            r"|filesystem layer verification failed|unauthorized: authentication required"
            r"|denied: requested access to the resource|error pulling image|pull rate limit"
            r"|image (?:pull|not found)[^\n]{0,20}(?:failed|error)"
            r"|repository does not exist or may require"
            r"|failed to do request: Head \"https://\S{0,60}/manifests"
            r"|image '?[\w.-]{1,80}[/:][\w./:@-]{1,120}'? (?:not found|does not exist)"
            r"|error creating container: [^\n]{0,80}image",
            "the image cannot be pulled",
            (
                'Failed to pull image "index.docker.io/x:latest": rpc error: code = NotFound '
                "desc = failed to pull and unpack image",
                "Error response from daemon: pull access denied for foo/bar, repository does not "
                "exist or may require 'docker login'",
                "manifest for foo/bar:latest not found: manifest unknown: manifest unknown",
                "no matching manifest for linux/arm64/v8 in the manifest list entries",
            ),
            Tier.RESOURCE,
            says="the image could not be pulled",
            fault="model_config",
            retry="no",
            advice=(
                "Check the image's name and tag, and the registry credentials of the endpoint.",
                "Where the registry throttles: sign in to it, or mirror the image; a later try then works.",
            ),
            unless=r"no space left|toomanyrequests|429|rate limit|timeout|TLS handshake|i/o timeout",
        ),
        Signal(
            r"toomanyrequests\\b|pull rate limit|429 Too Many Requests[^\n]{0,80}(?:manifest|registry"
            r"|Server message)|(?:registry|docker\.io|ghcr\.io)[^\n]{0,200}(?:429|50[0234]"
            r"|i/o timeout|TLS handshake timeout|no such host)",
            "the registry throttles or fails",
            (
                'Failed to pull image "docker.io/x": 429 Too Many Requests - Server message: '
                "toomanyrequests: You have reached your"
                " pull rate limit.",
                "failed to do request: Head "
                '"https://registry-1.docker.io/v2/x/manifests/latest": dial tcp: i/o timeout',
            ),
            Tier.RESOURCE,
            says="the image registry did not serve the image",
            fault="upstream_service",
            retry="yes",
            advice=("Retry later.", "Sign in to the registry in the endpoint's settings, or mirror the image."),
            unless=r"no space left|ollama",
        ),
        Signal(
            r"OCI runtime (?:create|exec) failed|failed to (?:start|create) (?:container|shim)",
            "the container runtime gave up; what stands behind it says why, if anything",
            ("failed to create shim task: OCI runtime create failed: runc create failed: unable to start",),
            Tier.HINT,
            strength="possible",
            unless=r"nvidia|driver|cuda|CDI",
            unless_near=r"nvidia-container-cli: |could not select device driver|failed to inject cdi",
            says="the container runtime could not start the container",
        ),
        Signal(
            r"Cannot(?:Pull|Start|Create)ContainerError|Cannot(?:Pull|Start|Create)Container\b",
            "the container service could not pull or start it",
            ("CannotPullContainerError: pull image manifest has been retried 1 time(s): not found",),
            strength="likely",
            says="the container service could not pull or start the image",
        ),
        Signal(
            r"Unable to handle docker://|could not open image \S+\.sif|short-name \S{2,60} did not res"
            r"olve|s6-\w+: [^\n]{0,60}permission denied",
            "another container tool cannot start the image",
            (
                "FATAL:   Unable to handle docker://x/y uri: while building SIF from layers",
                "FATAL:   could not open image /images/x.sif: failed to retrieve path",
                'Error: short-name "foo" did not resolve to an alias',
                "s6-supervise: exec: permission denied",
            ),
            strength="likely",
        ),
        Signal(
            r"/usr/bin/env: \W?(?:python|bash|sh|node)\w{0,6}\W{0,3}: No such file",
            "the interpreter that the program names is not in the image",
            ("/usr/bin/env: 'python': No such file or directory",),
            strength="likely",
            phases=("boot",),
        ),
    ),
)
