{{- define "chatserver.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "chatserver.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "chatserver.labels" -}}
{{ include "chatserver.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "chatserver.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* The worker Deployments, as YAML: name → values. */}}
{{- define "chatserver.workers" -}}
{{- with .Values.workersTogether }}
{{- if .enabled }}
{{- dict "all" (dict "replicas" .replicas "serviceAccount" "archive") | toYaml }}
{{- else }}
{{- toYaml $.Values.workers }}
{{- end }}
{{- end }}
{{- end }}

{{/* Settings that the chart sets, in addition to .Values.settings and the Secret. */}}
{{- define "chatserver.ownSettings" -}}
CHAT_GATEWAY_HOST: 0.0.0.0
CHAT_GATEWAY_PORT: {{ .Values.ports.gateway | quote }}
CHAT_API_HOST: 0.0.0.0
CHAT_API_PORT: {{ .Values.ports.api | quote }}
CHAT_TELEMETRY_METRICS_PORT: {{ .Values.ports.metrics | quote }}
{{- if .Values.search.claim }}
CHAT_SEARCH_INDEX: /search
{{- end }}
{{- end }}

{{- define "chatserver.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "chatserver.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{/*
The pod of a process. Arguments: root, component, args, ports (name → number), readyPort,
serviceAccount, resources, tmpSize, preStopS, stopS (the maximum time that the process takes to
stop). APIs and workers that index messages mount the volume of the search index.

enableServiceLinks is off, because Kubernetes would otherwise set variables for every Service. For a
Service chat-gateway, it would set CHAT_GATEWAY_PORT=tcp://…, which is a setting of chatserver.
*/}}
{{- define "chatserver.pod" -}}
{{- $root := .root -}}
{{- $claim := has .component (list "api" "worker-search" "worker-all") | ternary $root.Values.search.claim "" -}}
metadata:
  labels:
    {{- include "chatserver.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
  annotations:
    # A changed setting replaces the pods.
    checksum/settings: {{ $root.Values.settings | toJson | sha256sum }}
    {{- with $root.Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "chatserver.name" $root }}-{{ .serviceAccount }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add .preStopS .stopS 10 }}
  securityContext:
    {{- include "chatserver.podSecurity" $root | nindent 4 }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: {{ include "chatserver.image" $root }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: {{ toJson .args }}
      envFrom:
        - configMapRef: { name: {{ include "chatserver.name" $root }} }
        - secretRef: { name: {{ $root.Values.existingSecret }} }
      env:
        # The pod's address, which clients cannot reach.
        - name: CHAT_TELEMETRY_METRICS_HOST
          valueFrom: { fieldRef: { fieldPath: status.podIP } }
      ports:
        - { name: metrics, containerPort: {{ $root.Values.ports.metrics }} }
        {{- range $name, $port := .ports }}
        - { name: {{ $name }}, containerPort: {{ $port }} }
        {{- end }}
      startupProbe:
        httpGet: { path: /healthz, port: metrics }
        periodSeconds: 2
        failureThreshold: 30
      livenessProbe:
        httpGet: { path: /healthz, port: metrics }
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        httpGet: { path: /readyz, port: {{ .readyPort }} }
        periodSeconds: 2
        timeoutSeconds: 3
        failureThreshold: 2
      {{- if .preStopS }}
      lifecycle:
        preStop: { exec: { command: [sleep, {{ .preStopS | quote }}] } }
      {{- end }}
      securityContext:
        {{- include "chatserver.containerSecurity" $root | nindent 8 }}
      resources: {{ toYaml .resources | nindent 8 }}
      volumeMounts:
        - { name: tmp, mountPath: /tmp }
        {{- if $claim }}
        - { name: search, mountPath: /search }
        {{- end }}
  volumes:
    - name: tmp
      emptyDir: { sizeLimit: {{ .tmpSize }} }
    {{- if $claim }}
    - name: search
      persistentVolumeClaim: { claimName: {{ $claim }} }
    {{- end }}
  topologySpreadConstraints:
    {{- $labels := dict "root" $root "component" .component }}
    {{- range list (list "topology.kubernetes.io/zone" $root.Values.topologySpread.zone) (list "kubernetes.io/hostname" $root.Values.topologySpread.node) }}
    - maxSkew: 1
      topologyKey: {{ index . 0 }}
      whenUnsatisfiable: {{ index . 1 }}
      labelSelector:
        matchLabels:
          {{- include "chatserver.selector" $root | nindent 10 }}
          app.kubernetes.io/component: {{ $labels.component }}
    {{- end }}
  {{- with $root.Values.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
