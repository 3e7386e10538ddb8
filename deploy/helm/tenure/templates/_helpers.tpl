{{- define "tenure.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "tenure.selector" -}}
app.kubernetes.io/name: tenure
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "tenure.labels" -}}
{{ include "tenure.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "tenure.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* What all pods have in common. */}}
{{- define "tenure.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "tenure.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}

{{- /* What all containers have in common. */}}
{{- define "tenure.env" -}}
- name: TENURE_NODE
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
- name: TENURE_STORE
  value: {{ .Values.store | quote }}
- name: TENURE_NAMESPACE
  value: {{ .Values.namespace | quote }}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "tenure.container" -}}
envFrom:
  - secretRef: {name: {{ .Values.storeSecret }}, optional: true}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- /*
A node beside an application, for the initContainers of its pods:

  initContainers:
    {{- include "tenure.sidecar" .Subcharts.tenure | nindent 8 }}

Its pods also need what tenure.pod shows, above all a terminationGracePeriodSeconds 15 s longer than the application's own.
*/}}
{{- define "tenure.sidecar" -}}
- name: tenure
  image: {{ include "tenure.image" . }}
  restartPolicy: Always
  args: [run]
  env:
    {{- include "tenure.env" . | nindent 4 }}
    - name: TENURE_HTTP_TOKEN
      valueFrom:
        secretKeyRef: {name: {{ .Values.sidecar.httpSecret }}, key: token, optional: true}
  startupProbe:
    exec: {command: [/tenure, events, --recent, "0"]}
    periodSeconds: 1
    timeoutSeconds: 5
    failureThreshold: 60
  livenessProbe:
    exec: {command: [/tenure, events, --recent, "0"]}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  resources: {{- toYaml .Values.sidecar.resources | nindent 4 }}
  {{- include "tenure.container" . | nindent 2 }}
{{- end }}
