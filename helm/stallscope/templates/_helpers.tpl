{{- define "stallscope.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods of a component: never changes for a release. Takes (root, component). */}}
{{- define "stallscope.selectorLabels" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "stallscope.labels" -}}
{{ include "stallscope.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: stallscope
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Takes an image: repository, tag, digest; and what the tag is where none is given. */}}
{{- define "stallscope.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .tag .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "stallscope.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "stallscope.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "stallscope.databaseSecret" -}}
{{- if .Values.clickhouse.enabled -}}
{{- default (printf "%s-clickhouse" (include "stallscope.fullname" .)) .Values.clickhouse.existingSecret -}}
{{- else -}}
{{- .Values.database.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* Key of the address of the store that a component (collector, dashboard, migration) uses. Takes (root, component). */}}
{{- define "stallscope.databaseKey" -}}
{{- if .root.Values.clickhouse.enabled -}}
{{- ternary "dashboardUrl" "url" (eq .component "dashboard") -}}
{{- else -}}
{{- default .root.Values.database.keys.collector (index .root.Values.database.keys .component) -}}
{{- end -}}
{{- end -}}

{{- define "stallscope.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "stallscope.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities:
  drop: [ALL]
{{- end -}}

{{/* A value of `config` as an environment variable has it: no exponents, as YAML's numbers would get. */}}
{{- define "stallscope.plain" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- printf "%.0f" . -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end -}}

{{/* What contradicts itself is refused here, in words, before anything is sent to a cluster. */}}
{{- define "stallscope.check" -}}
{{- $v := .Values -}}
{{- if and (not $v.clickhouse.enabled) (not $v.database.existingSecret) -}}
{{- fail "\n\ndatabase.existingSecret: name the Secret that holds the address of ClickHouse, or try it out with clickhouse.enabled=true" -}}
{{- end -}}
{{- if and $v.clickhouse.enabled $v.database.existingSecret -}}
{{- fail "\n\ndatabase.existingSecret and clickhouse.enabled: use one store, not both" -}}
{{- end -}}
{{- if and (not $v.tokens.existingSecret) (not $v.insecure) -}}
{{- fail "\n\ntokens.existingSecret: name the Secret that holds the tokens, or say insecure=true to answer everyone who reaches a port" -}}
{{- end -}}
{{- if and $v.tokens.existingSecret $v.insecure -}}
{{- fail "\n\ntokens.existingSecret and insecure: with tokens there is nothing to leave open" -}}
{{- end -}}
{{- if or (eq $v.image.tag "latest") (eq $v.clickhouse.image.tag "latest") -}}
{{- fail "\n\nimage.tag, clickhouse.image.tag: latest is another image every day; name a version" -}}
{{- end -}}
{{- if and $v.tls.collector.clientCa.existingSecret (not $v.tls.collector.existingSecret) -}}
{{- fail "\n\ntls.collector.clientCa.existingSecret: mutual TLS needs tls.collector.existingSecret as well" -}}
{{- end -}}
{{- if and $v.collector.autoscaling.enabled (gt (int $v.collector.autoscaling.minReplicas) (int $v.collector.autoscaling.maxReplicas)) -}}
{{- fail "\n\ncollector.autoscaling.minReplicas is more than maxReplicas" -}}
{{- end -}}
{{- range $role := list "collector" "dashboard" -}}
{{- $own := index $v $role -}}
{{- if lt (int $own.terminationGracePeriodSeconds) (add (int $own.drainSeconds) 15 | int) -}}
{{- fail (printf "\n\n%s.terminationGracePeriodSeconds: open requests have 10 s to end after drainSeconds, and what waits is stored then: %d at least" $role (add (int $own.drainSeconds) 15)) -}}
{{- end -}}
{{- end -}}
{{- if and $v.ingress.enabled (not $v.ingress.collector.host) (not $v.ingress.dashboard.host) -}}
{{- fail "\n\ningress.enabled: name ingress.collector.host, ingress.dashboard.host or both" -}}
{{- end -}}
{{- if and $v.gateway.enabled (not $v.gateway.parentRefs) -}}
{{- fail "\n\ngateway.parentRefs: name the Gateway that the routes belong to" -}}
{{- end -}}
{{- if and $v.gateway.enabled (not $v.gateway.collector.hostnames) (not $v.gateway.collector.grpcHostnames) (not $v.gateway.dashboard.hostnames) -}}
{{- fail "\n\ngateway.enabled: name hostnames of collector, dashboard or both" -}}
{{- end -}}
{{- if and $v.alerts.keys (not $v.alerts.existingSecret) -}}
{{- fail "\n\nalerts.keys: name the Secret that has them in alerts.existingSecret" -}}
{{- end -}}
{{- end -}}
