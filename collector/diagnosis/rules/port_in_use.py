"""A listen address is taken."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal

RULE = Rule(
    code="port_in_use",
    fault="model_config",
    retry="maybe",
    because="the port[ {port}] that it should listen on is already taken",
    details=(
        Detail(
            "port",
            r"(?:\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}|localhost|\[::\]|'::'|\*"
            r"|0\.0\.0\.0'?,)[: ](\d{2,5})\b|port:? (\d{2,5})\b|:::?(\d{2,5})\b",
        ),
    ),
    advice=(
        "Choose another port for one of the two programs, or let the system choose (port 0).",
        "Check for an earlier process of the same server that still runs; end it before the new one starts.",
    ),
    signals=(
        Signal(
            r"Address already in use|\(98: Address in use|\bEADDRINUSE\b|Errno 98\b|Errno 48\b|WinError 10048"
            r"|os error 98|errno: ?98\b|code: ?-98\b|port (?:is )?already (?:in use|allocated"
            r"|used)|already in use[^\n]{0,20}\bport\b"
            r"|Socket '[^'\n]{1,60}' already in use|port \d+ is (?:already )?(?:in use|used"
            r"|occupied|taken|not available)|Cannot find empty port|Only one usage of each socket address|ports? (?:are"
            r"|is) (?:all )?(?:already )?(?:in use|occupied|allocated)",
            "the operating system refuses the address",
            (
                "OSError: [Errno 98] Address already in use",
                "[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
                "listen tcp 0.0.0.0:11434: bind: address already in use",
                "Error: listen EADDRINUSE: address already in use :::3000",
                "failed to start GRPC service: Unavailable - Socket '0.0.0.0:18001' already in use",
                "OSError: Cannot find empty port in range: 7860-7860.",
                "docker: Error response from daemon: driver failed programming external "
                "connectivity: Bind for 0.0.0.0:8000 failed:"
                " port is already allocated.",
            ),
            unless=r"children:\[UNKNOWN|trying (?:another|next|port)|using port \d+ instead|will try",
        ),
        Signal(
            r"Adresse wird bereits verwendet|Adresse déjà utilisée|La dirección ya se está usando"
            r"|la dirección ya está en uso|地址已(?:经)?(?:在)?(?:被)?(?:使用|占用)|地址已在使用"
            r"|端口[^\n]{0,12}(?:已)?被占用|アドレスは(?:既に|すでに)使用(?:中|され)|endereço já (?:está )?em uso"
            r"|Indirizzo già in uso|Адрес уже используется|Adres jest już w użyciu|주소가 이미 사용 중|只允许使用一次",
            "the same in other languages",
            (
                "OSError: [Errno 98] Die Adresse wird bereits verwendet",
                "OSError: [Errno 98] 地址已在使用",
                "[Errno 10048] error while attempting to bind on address ('0.0.0.0', 7860): "
                "通常每个套接字地址(协议/网络地址/端口)只允许使用一次。",
            ),
        ),
        Signal(
            r"couldn't bind (?:HTTP )?server socket|kind: AddrInUse|^Error: Address in use"
            r"|Failed to bind to address|bind\(\) to \S{3,60} failed|Only one usage of each socket address",
            "other words for a taken address",
            (
                "couldn't bind HTTP server socket, hostname: 0.0.0.0, port: 8080",
                "Error: Address in use: Os { code: 98, kind: AddrInUse }",
                "RuntimeError: Failed to bind to address 0.0.0.0:50051",
                "[emerg] 12#12: bind() to 0.0.0.0:8000 failed (98: Unknown error)",
            ),
            strength="likely",
            unless=r"Permission denied|Cannot assign|\(13|\(99",
        ),
    ),
)
