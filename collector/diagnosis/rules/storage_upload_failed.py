"""Writing the result to object storage failed."""

from collector.diagnosis.rules.shape import Detail, Rule, Signal, Tier

RULE = Rule(
    code="storage_upload_failed",
    fault="model_config",
    retry="no",
    because="the result could not be written to object storage[: {problem}]",
    details=(
        Detail(
            "problem",
            r"An error occurred \((\w+)\) when calling|(Unable to locate credentials)"
            r"|(Could not connect to the endpoint URL)|(NoSuchBucket|AccessDenied"
            r"|InvalidAccessKeyId|SignatureDoesNotMatch)",
        ),
        Detail("bucket", r"to ([\w.-]{3,63})/"),
    ),
    advice=(
        "Check the bucket's address, name and keys in the endpoint's environment "
        "(BUCKET_ENDPOINT_URL, BUCKET_ACCESS_KEY_ID,"
        " BUCKET_SECRET_ACCESS_KEY).",
        "Check that the key may write to the bucket (PutObject), and that the bucket is in the "
        "region that the address names.",
    ),
    quotes=True,
    signals=(
        Signal(
            r"S3UploadFailedError|(?:Failed|failed|Unable|unable) to upload [^\n]{0,160}(?:s3"
            r"|bucket|storage|blob|gcs|r2)|calling the (?:PutObject|UploadPart"
            r"|CreateMultipartUpload|CompleteMultipartUpload|CreateBucket) operation|(?:upload"
            r"|put)[^\n]{0,40}(?:s3|bucket|blob|gcs|storage)[^\n]{0,60}(?:failed|error|denied|403"
            r"|404)|Error uploading (?:file|image|result|output|to)|AzureError[^\n]{0,60}upload"
            r"|google\.(?:cloud|api_core)\S{0,40}(?:Forbidden|NotFound)[^\n]{0,120}upload",
            "the upload is refused",
            (
                "boto3.exceptions.S3UploadFailedError: Failed to upload out.png to bucket/out.png: An error occurred"
                " (InvalidAccessKeyId) when calling the PutObject operation: The AWS Access Key "
                "Id you provided does not exist",
                "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling "
                "the PutObject operation: Access Denied",
            ),
            Tier.RESOURCE,
        ),
        Signal(
            r"NoCredentialsError|Unable to locate credentials|PartialCredentialsError"
            r"|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket|EndpointConnectionError"
            r"|Could not connect to the endpoint URL|AccessDenied|Invalid endpoint|ExpiredToken"
            r"|DefaultCredentialsError|AllAccessDisabled|RequestTimeTooSkewed|ResourceNotFoundError"
            r"|ContainerNotFound|PermanentRedirect|ClientAuthenticationError|AuthenticationFailed|AuthorizationFailure"
            r"|InvalidBucketName",
            "storage refuses, in the middle of writing a result (rule 9)",
            ("botocore.exceptions.NoCredentialsError: Unable to locate credentials",),
            strength="likely",
            near=r"upload|put_object|putobject|rp_upload|bucket\.put|write[^\n]{0,20}s3|save[^\n]{0,20}s3",
            unless=r"GetObject|HeadObject|ListObjects|download",
        ),
        Signal(
            r"NoCredentialsError|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket"
            r"|Could not connect to the endpoint URL",
            "storage refuses; whether it was reading or writing is not in the tail",
            ("botocore.exceptions.NoCredentialsError: Unable to locate credentials",),
            Tier.HINT,
            strength="possible",
            phases=("handler",),
            unless_near=r"download|get_object|getobject|headobject|from_pretrained|load_model",
        ),
        Signal(
            r"(?:upload|Upload)(?:ing)?\b[^\n]{0,80}(?:failed|error|timed out|denied|refused"
            r"|Exception)|(?:Failed|failed|Error|error|Could not|Unable) (?:to |while "
            r"|in )?upload(?:ing)?\b",
            "an upload failed, by the program's own words",
            ("ERROR: Upload of result failed after 3 attempts", "Error while uploading the video"),
            Tier.HINT,
            strength="possible",
            unless=r"\bINFO\b|retry|usage (?:stat|report)|telemetry|hugging|push_to_hub|wandb|Not able to upload",
        ),
        Signal(
            r"(?:Bucket not found|bucket does not exist)[^\n]{0,40}upload|storage\.objects\.create access",
            "another store refuses the upload",
            (
                "supabase StorageException: {'statusCode': 400, 'error': 'Bucket not found'} while uploading",
                "403 sa does not have storage.objects.create access to the Google Cloud Storage object.",
            ),
            strength="likely",
        ),
    ),
)
