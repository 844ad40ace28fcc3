{{/* A Deployment of `stallscope serve`, of one role. Takes (root, component). */}}
{{- define "stallscope.deployment" -}}
{{- $root := .root -}}
{{- $role := .component -}}
{{- $own := index $root.Values $role -}}
{{- $tls := index $root.Values.tls $role -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "stallscope.fullname" $root }}-{{ $role }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "stallscope.labels" . | nindent 4 }}
spec:
  {{- if not (dig "autoscaling" "enabled" false $own) }}
  replicas: {{ $own.replicas }}
  {{- end }}
  revisionHistoryLimit: 3
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  selector:
    matchLabels: {{- include "stallscope.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "stallscope.labels" . | nindent 8 }}
        {{- with $own.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        checksum/alert-rules: {{ $root.Values.alerts.rules | sha256sum | trunc 16 }}
        {{- with $own.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "stallscope.serviceAccountName" $root }}
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $own.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      terminationGracePeriodSeconds: {{ $own.terminationGracePeriodSeconds }}
      securityContext: {{- include "stallscope.podSecurityContext" 10001 | nindent 8 }}
      containers:
        - name: {{ $role }}
          image: {{ include "stallscope.image" (dict "image" $root.Values.image "tag" $root.Chart.AppVersion) }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [serve, --role, {{ $role }}, --host, {{ $root.Values.listen | quote }}]
          securityContext: {{- include "stallscope.securityContext" . | nindent 12 }}
          env: {{- include "stallscope.env" . | nindent 12 }}
          ports:
            - {name: http, containerPort: 4318, protocol: TCP}
            {{- if eq $role "collector" }}
            - {name: grpc, containerPort: 4317, protocol: TCP}
            {{- end }}
          # The process is up from its start on. Whether the store is there and migrated is for readiness alone: a
          # restart would mend neither.
          startupProbe:
            {{- include "stallscope.probe" (dict "tls" $tls "path" "/healthz") | nindent 12 }}
            periodSeconds: 2
            failureThreshold: 60
            timeoutSeconds: 5
          livenessProbe:
            {{- include "stallscope.probe" (dict "tls" $tls "path" "/healthz") | nindent 12 }}
            periodSeconds: 10
            failureThreshold: 6
            timeoutSeconds: 5
          readinessProbe:
            {{- include "stallscope.probe" (dict "tls" $tls "path" "/readyz") | nindent 12 }}
            periodSeconds: 5
            failureThreshold: 2
            timeoutSeconds: 5
          {{- if $own.drainSeconds }}
          lifecycle:
            preStop:
              exec:
                command: [sleep, {{ $own.drainSeconds | quote }}]
          {{- end }}
          resources: {{- toYaml $own.resources | nindent 12 }}
          volumeMounts: {{- include "stallscope.volumeMounts" . | nindent 12 }}
      volumes: {{- include "stallscope.volumes" . | nindent 8 }}
      {{- with $own.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $own.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $own.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        {{- if $own.topologySpreadConstraints }}
        {{- toYaml $own.topologySpreadConstraints | nindent 8 }}
        {{- else }}
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "stallscope.selectorLabels" . | nindent 14 }}
        {{- end }}
{{- end -}}

{{/* The kubelet has no client certificate: with mutual TLS it can only see that somebody listens. */}}
{{- define "stallscope.probe" -}}
{{- if dig "clientCa" "existingSecret" "" .tls -}}
tcpSocket:
  port: http
{{- else -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ ternary "HTTPS" "HTTP" (ne .tls.existingSecret "") }}
{{- end -}}
{{- end -}}

{{- define "stallscope.env" -}}
{{- $values := .root.Values -}}
{{- $role := .component -}}
- {name: STALLSCOPE_DATABASE_URL_FILE, value: /etc/stallscope/database/url}
{{- if $values.tokens.existingSecret }}
{{- range $kind := (include "stallscope.tokenKinds" . | splitList " ") }}
{{- if index $values.tokens.keys $kind }}
- {name: STALLSCOPE_{{ upper $kind }}_TOKENS_FILE, value: /etc/stallscope/tokens/{{ $kind }}}
{{- end }}
{{- end }}
{{- else if ne $role "migration" }}
- {name: STALLSCOPE_INSECURE, value: "true"}
{{- end }}
{{- range $name, $value := $values.config }}
- name: STALLSCOPE_{{ snakecase $name | upper }}
  value: {{ include "stallscope.plain" $value | quote }}
{{- end }}
{{- if eq $role "collector" }}
{{- range $name, $key := $values.alerts.keys }}
- {name: STALLSCOPE_ALERT_{{ snakecase $name | upper }}_FILE, value: /etc/stallscope/alerts/{{ $key }}}
{{- end }}
{{- if $values.alerts.rules }}
- {name: STALLSCOPE_ALERT_RULES, value: /etc/stallscope/alert-rules/rules.yaml}
{{- end }}
{{- end }}
{{- if ne $role "migration" }}
{{- with (index $values.tls $role) }}
{{- if .existingSecret }}
- {name: STALLSCOPE_TLS_CERTIFICATE, value: /etc/stallscope/tls/tls.crt}
- {name: STALLSCOPE_TLS_KEY, value: /etc/stallscope/tls/tls.key}
{{- end }}
{{- if dig "clientCa" "existingSecret" "" . }}
- {name: STALLSCOPE_TLS_CLIENT_CA, value: /etc/stallscope/client-ca/ca.crt}
{{- end }}
{{- end }}
{{- with (index $values $role).extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Kinds of tokens that a component needs to know: no more than those are mounted there. */}}
{{- define "stallscope.tokenKinds" -}}
{{- get (dict "collector" "ingest metrics" "dashboard" "read operate admin metrics" "migration" "") .component -}}
{{- end -}}

{{- define "stallscope.volumeMounts" -}}
{{- $values := .root.Values -}}
{{- $role := .component -}}
- {name: tmp, mountPath: /tmp}
- {name: database, mountPath: /etc/stallscope/database, readOnly: true}
{{- if ne $role "migration" }}
{{- if $values.tokens.existingSecret }}
- {name: tokens, mountPath: /etc/stallscope/tokens, readOnly: true}
{{- end }}
{{- with (index $values.tls $role) }}
{{- if .existingSecret }}
- {name: tls, mountPath: /etc/stallscope/tls, readOnly: true}
{{- end }}
{{- if dig "clientCa" "existingSecret" "" . }}
- {name: client-ca, mountPath: /etc/stallscope/client-ca, readOnly: true}
{{- end }}
{{- end }}
{{- if and (eq $role "collector") $values.alerts.keys }}
- {name: alerts, mountPath: /etc/stallscope/alerts, readOnly: true}
{{- end }}
{{- if and (eq $role "collector") $values.alerts.rules }}
- {name: alert-rules, mountPath: /etc/stallscope/alert-rules, readOnly: true}
{{- end }}
{{- with (index $values $role).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "stallscope.volumes" -}}
{{- $values := .root.Values -}}
{{- $role := .component -}}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
- name: database
  secret:
    secretName: {{ include "stallscope.databaseSecret" .root }}
    defaultMode: 0440
    items:
      - {key: {{ include "stallscope.databaseKey" . }}, path: url}
{{- if ne $role "migration" }}
{{- if $values.tokens.existingSecret }}
- name: tokens
  secret:
    secretName: {{ $values.tokens.existingSecret }}
    defaultMode: 0440
    items:
      {{- range $kind := (include "stallscope.tokenKinds" . | splitList " ") }}
      {{- with index $values.tokens.keys $kind }}
      - {key: {{ . }}, path: {{ $kind }}}
      {{- end }}
      {{- end }}
{{- end }}
{{- with (index $values.tls $role) }}
{{- if .existingSecret }}
- name: tls
  secret:
    secretName: {{ .existingSecret }}
    defaultMode: 0440
{{- end }}
{{- if dig "clientCa" "existingSecret" "" . }}
- name: client-ca
  secret:
    secretName: {{ .clientCa.existingSecret }}
    defaultMode: 0440
    items:
      - {key: {{ .clientCa.key }}, path: ca.crt}
{{- end }}
{{- end }}
{{- if and (eq $role "collector") $values.alerts.keys }}
- name: alerts
  secret:
    secretName: {{ $values.alerts.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- if and (eq $role "collector") $values.alerts.rules }}
- name: alert-rules
  configMap:
    name: {{ include "stallscope.fullname" .root }}-alert-rules
{{- end }}
{{- with (index $values $role).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Takes (root, component). */}}
{{- define "stallscope.service" -}}
{{- $own := index .root.Values .component -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "stallscope.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "stallscope.labels" . | nindent 4 }}
  {{- with $own.service.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ $own.service.type }}
  selector: {{- include "stallscope.selectorLabels" . | nindent 4 }}
  ports:
    - {name: http, port: {{ $own.service.httpPort }}, targetPort: http, protocol: TCP, appProtocol: {{ ternary "https" "http" (ne (index .root.Values.tls .component).existingSecret "") }}}
    {{- if eq .component "collector" }}
    - {name: grpc, port: {{ $own.service.grpcPort }}, targetPort: grpc, protocol: TCP, appProtocol: {{ ternary "grpcs" "kubernetes.io/h2c" (ne .root.Values.tls.collector.existingSecret "") }}}
    {{- end }}
{{- end -}}

{{- define "stallscope.podDisruptionBudget" -}}
{{- $own := index .root.Values .component -}}
{{- if $own.podDisruptionBudget.enabled -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "stallscope.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "stallscope.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ $own.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels: {{- include "stallscope.selectorLabels" . | nindent 6 }}
{{- end -}}
{{- end -}}
