{{/* A Job that builds drafting data from the corpus, or a CronJob if `values.schedule`
     is set. Takes a dict: root, name (crest-build), values, command (its words), inputs
     (the flags that say what it reads), env, writable (whether it writes to the models' volume), work (size of its space). */}}
{{- define "foretoken.build" -}}
{{- $template := include "foretoken.build.template" . -}}
{{- if .values.schedule -}}
apiVersion: batch/v1
kind: CronJob
metadata:
  {{- include "foretoken.metadata" . | nindent 2 }}
spec:
  schedule: {{ .values.schedule | quote }}
  concurrencyPolicy: Forbid
  successfulJobsHistoryLimit: 1
  failedJobsHistoryLimit: 2
  jobTemplate:
    spec:
      backoffLimit: 3
      template:
        {{- $template | nindent 8 }}
{{- else -}}
apiVersion: batch/v1
kind: Job
metadata:
  # A Job never changes: another configuration is another Job.
  name: {{ include "foretoken.fullname" .root }}-{{ .name }}-{{ $template | sha256sum | trunc 8 }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "foretoken.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .name }}
spec:
  # The first day's database may come up after the Job.
  backoffLimit: 10
  template:
    {{- $template | nindent 4 }}
{{- end }}
{{- if .root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "foretoken.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "foretoken.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress: []
  {{- $fetch := .root.Values.corpus.fetch }}
  {{- if or .egress $fetch.image }}
  egress:
    - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
    {{- with .egress }}
    - ports: [{port: {{ int . }}}]
    {{- end }}
    {{- if $fetch.image }}
    - ports: [{port: {{ int $fetch.port }}}]
    {{- end }}
  {{- else }}
  egress: []
  {{- end }}
{{- end }}
{{- end -}}

{{/* The flags of a build that reads the corpus, as JSON. */}}
{{- define "foretoken.build.corpus" -}}
{{- $flags := list (printf "--tokenizer=%s" (include "foretoken.tokenizer" .root)) -}}
{{- range .values.corpus -}}{{- $flags = append $flags (printf "--corpus=%s" .) -}}{{- end -}}
{{- $flags | toJson -}}
{{- end -}}

{{- define "foretoken.build.template" -}}
{{- $v := .root.Values -}}
metadata:
  labels:
    {{- include "foretoken.selector" . | nindent 4 }}
    app.kubernetes.io/part-of: foretoken
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    {{- toYaml $v.podSecurityContext | nindent 4 }}
  {{- with include "foretoken.priority" (dict "root" .root "values" .values "class" "building") }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $v.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.corpus.fetch }}
  {{- if .image }}
  initContainers:
    - name: fetch
      image: {{ .image | quote }}
      command:
        {{- toYaml .command | nindent 8 }}
      env:
        - {name: HOME, value: /tmp}
      {{- with .envFromSecret }}
      envFrom:
        - secretRef: {name: {{ . }}}
      {{- end }}
      securityContext:
        {{- toYaml $v.securityContext | nindent 8 }}
      resources:
        {{- toYaml $.values.resources | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: corpus, mountPath: {{ $v.corpus.mountPath }}}
  {{- end }}
  {{- end }}
  containers:
    - name: build
      image: {{ include "foretoken.image" .root }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      command:
        {{- toYaml .command | nindent 8 }}
      args:
        {{- toYaml .inputs | nindent 8 }}
        {{- range $flag, $value := .values.config }}
        {{- if eq (toString $value) "true" }}
        - --{{ $flag }}
        {{- else if ne (toString $value) "false" }}
        - --{{ $flag }}={{ include "foretoken.scalar" $value }}
        {{- end }}
        {{- end }}
      {{- with .env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml $v.securityContext | nindent 8 }}
      resources:
        {{- toYaml .values.resources | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- if include "foretoken.hasVolume" $v.models.volume }}
        - {name: models, mountPath: {{ $v.models.volume.mountPath }}, readOnly: {{ not .writable }}}
        {{- end }}
        - {name: corpus, mountPath: {{ $v.corpus.mountPath }}, readOnly: true}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: {{ .work }}}
    {{- if include "foretoken.hasVolume" $v.models.volume }}
    - {{- include "foretoken.volume" (dict "root" .root "name" "models" "volume" $v.models.volume "writable" .writable) | nindent 6 }}
    {{- end }}
    - {{- include "foretoken.volume" (dict "root" .root "name" "corpus" "volume" $v.corpus) | nindent 6 }}
{{- end -}}
