{{- define "bridge.labels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "bridge.image" -}}
{{- $image := .Values.image -}}
{{- $repository := required "image.repository: name your own image, FROM the project's Dockerfile" $image.repository -}}
{{- if $image.digest }}{{ $repository }}@{{ $image.digest }}
{{- else }}{{ $repository }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "bridge.command" -}}
bridge{{ if ne .Values.app "tasks" }}, -A, {{ .Values.app }}{{ end }}
{{- end }}

{{- define "bridge.ping" -}}
exec:
  command: [sh, -c, 'celery -A {{ .Values.app }} inspect ping --timeout 10 --destination "celery@$(hostname)"']
{{- end }}

{{- define "bridge.environment" -}}
{{- /* A number of a values file is a float64, which would be written as 1e+06. */}}
{{- range $name, $value := .variables }}
- name: {{ $name }}
  value: {{ ternary (toJson $value) $value (kindIs "float64" $value) | quote }}
{{- end }}
{{- range $name, $from := .secrets }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef: {name: {{ $from.name }}, key: {{ $from.key }}}
{{- end }}
{{- end }}

{{/* What every pod has: no token of the API, no variables of Services (KAFKA_PORT would be a setting), no root. */}}
{{- define "bridge.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.serviceAccountName }}
serviceAccountName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir: {}
  {{- with .Values.volumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "bridge.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "bridge.labels" . | nindent 8 }}
{{- end }}

{{- define "bridge.container" -}}
image: {{ include "bridge.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  {{- with .Values.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* A node that is drained takes one pod at a time; one that is not ready holds no drain up. */}}
{{- define "bridge.disruption" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .root.Release.Name }}-{{ .component }}
  labels: {{- include "bridge.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "bridge.labels" . | nindent 6 }}
{{- end }}
