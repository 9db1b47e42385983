{{/* Pod template of a service. */}}
{{- define "foretoken.pod" -}}
{{- $v := .root.Values -}}
{{- $s := .values -}}
{{- $preStop := int (default 0 $s.preStopSeconds) -}}
metadata:
  labels:
    {{- include "foretoken.selector" . | nindent 4 }}
    app.kubernetes.io/part-of: foretoken
  {{- if or $v.configChecksums $s.podAnnotations }}
  annotations:
    {{- if $v.configChecksums }}
    checksum/config: {{ include "foretoken.config" . | sha256sum }}
    {{- end }}
    {{- with $s.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  # Service environment variables would begin with FORETOKEN_ too.
  enableServiceLinks: false
  # The drain, then time to end the remaining streams and the process.
  terminationGracePeriodSeconds: {{ add $v.drainSeconds $preStop 15 }}
  securityContext:
    {{- toYaml $v.podSecurityContext | nindent 4 }}
  {{- with $v.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with include "foretoken.priority" (dict "root" .root "values" $s "class" (ternary "drafting" "serving" (has .name (list "draft-worker" "trie-drafter" "crest")))) }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $s.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with $s.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $s.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $s.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "foretoken.selector" . | nindent 10 }}
  {{- if and (eq .name "trie-drafter") $v.trieDrafter.priorBuild.enabled }}
  initContainers:
    # On the first day the prior is still being built.
    - name: await-prior
      image: {{ include "foretoken.image" .root }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      command: [sh, -c, 'until [ -f "$0" ]; do sleep 2; done', {{ $v.trieDrafter.prior | quote }}]
      securityContext:
        {{- toYaml $v.securityContext | nindent 8 }}
      resources:
        requests: {cpu: 10m, memory: 16Mi}
        limits: {memory: 64Mi}
      volumeMounts:
        {{- include "foretoken.mounts" . | nindent 8 }}
  {{- end }}
  containers:
    - name: {{ .name }}
      image: {{ include "foretoken.image" .root }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      command: [foretoken-{{ .name }}]
      envFrom:
        - configMapRef:
            name: {{ include "foretoken.fullname" .root }}-{{ .name }}
      {{- with include "foretoken.secretEnv" . }}
      {{- . | nindent 6 }}
      {{- end }}
      ports:
        - name: {{ default "grpc" .portName }}
          containerPort: {{ .port }}
        {{- if $v.metrics.enabled }}
        - name: metrics
          containerPort: {{ .metricsPort }}
        {{- end }}
      {{- include "foretoken.probes" . | nindent 6 }}
      {{- if $preStop }}
      lifecycle:
        preStop:
          exec:
            command: [sleep, "{{ $preStop }}"]
      {{- end }}
      securityContext:
        {{- toYaml $v.securityContext | nindent 8 }}
      resources:
        {{- include "foretoken.resources" $s | nindent 8 }}
      volumeMounts:
        {{- include "foretoken.mounts" . | nindent 8 }}
  volumes:
    {{- include "foretoken.volumes" . | nindent 4 }}
{{- end -}}

{{- define "foretoken.resources" -}}
{{- $gpus := int (default 0 .gpus) -}}
{{- $resources := deepCopy .resources -}}
{{- if $gpus -}}
{{- $limits := merge (dict "nvidia.com/gpu" $gpus) (default dict $resources.limits) -}}
{{- $resources = merge (dict "limits" $limits) $resources -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{- define "foretoken.postgresEnv" -}}
{{- $secret := .Values.crest.postgres -}}
{{- if .Values.trial.postgres.enabled -}}
{{- $secret = dict "secretName" (printf "%s-trial" (include "foretoken.fullname" .)) "key" "postgres-url" -}}
{{- end -}}
{{- if $secret.secretName -}}
- name: FORETOKEN_POSTGRES_URL
  valueFrom:
    secretKeyRef: {name: {{ $secret.secretName }}, key: {{ $secret.key }}}
{{- end -}}
{{- end -}}

{{- define "foretoken.redisEnv" -}}
{{- $secret := .Values.trieDrafter.redis -}}
{{- if .Values.trial.redis.enabled -}}
{{- $secret = dict "secretName" (printf "%s-trial" (include "foretoken.fullname" .)) "key" "redis-url" -}}
{{- end -}}
{{- if $secret.secretName -}}
- name: FORETOKEN_REDIS_URL
  valueFrom:
    secretKeyRef: {name: {{ $secret.secretName }}, key: {{ $secret.key }}}
{{- end -}}
{{- end -}}

{{/* URLs with passwords come from Secrets into the environment. */}}
{{- define "foretoken.secretEnv" -}}
{{- $env := list -}}
{{- $v := .root.Values -}}
{{- if eq .name "crest" -}}
{{- $env = concat $env (include "foretoken.postgresEnv" .root | fromYamlArray) -}}
{{- end -}}
{{- if eq .name "trie-drafter" -}}
{{- $env = concat $env (include "foretoken.redisEnv" .root | fromYamlArray) -}}
{{- end -}}
{{- $env = concat $env .values.extraEnv -}}
{{- with $env -}}
env:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* A service listens once it has loaded what it needs: `startup` waits for
     that. The kubelet's gRPC probe knows no TLS, so there readiness is asked by
     the command line; it has no client certificate, so with mutual TLS a pod that
     listens counts as ready. Liveness never depends on certificates, nor on
     another service: the health of orchestrator, gateway and crest tells of
     verifiers and of PostgreSQL, and a restart would mend neither. */}}
{{- define "foretoken.probes" -}}
{{- $tls := .root.Values.tls -}}
{{- $own := not (has .name (list "orchestrator" "crest" "gateway")) -}}
{{- $port := default "grpc" .portName -}}
startupProbe:
  tcpSocket: {port: {{ $port }}}
  periodSeconds: 5
  failureThreshold: {{ max 1 (div .values.startupSeconds 5) }}
livenessProbe:
  {{- if and $own (not $tls.enabled) }}
  grpc: {port: {{ .port }}}
  {{- else }}
  tcpSocket: {port: {{ $port }}}
  {{- end }}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  {{- if eq .name "gateway" }}
  httpGet: {path: /health, port: http, scheme: {{ ternary "HTTPS" "HTTP" $tls.enabled }}}
  {{- else if not $tls.enabled }}
  grpc: {port: {{ .port }}}
  {{- else if and $tls.mutual (ne .name "orchestrator") }}
  tcpSocket: {port: grpc}
  {{- else }}
  exec:
    command:
      - foretoken
      - health
      - --server=localhost:{{ .port }}
      - --server-tls-ca=/etc/foretoken/tls/ca.crt
  {{- end }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{- define "foretoken.mounts" -}}
{{- $v := .root.Values -}}
{{- $mounts := list (dict "name" "tmp" "mountPath" "/tmp") -}}
{{- if include "foretoken.hasVolume" $v.models.volume -}}
{{- $mounts = append $mounts (dict "name" "models" "mountPath" $v.models.volume.mountPath "readOnly" true) -}}
{{- end -}}
{{- if $v.tls.enabled -}}
{{- $mounts = append $mounts (dict "name" "tls" "mountPath" "/etc/foretoken/tls" "readOnly" true) -}}
{{- if eq .name "orchestrator" -}}
{{- $mounts = append $mounts (dict "name" "peer-tls" "mountPath" "/etc/foretoken/peer-tls" "readOnly" true) -}}
{{- end -}}
{{- end -}}
{{- if and $v.auth.internal.secretName (ne .name "gateway") -}}
{{- $mounts = append $mounts (dict "name" "internal-tokens" "mountPath" "/etc/foretoken/internal-tokens" "readOnly" true) -}}
{{- end -}}
{{- if and $v.auth.public.secretName (eq .name "orchestrator") -}}
{{- $mounts = append $mounts (dict "name" "public-tokens" "mountPath" "/etc/foretoken/public-tokens" "readOnly" true) -}}
{{- end -}}
{{- if and $v.auth.scopes.secretName (eq .name "orchestrator") -}}
{{- $mounts = append $mounts (dict "name" "scope-key" "mountPath" "/etc/foretoken/scope-key" "readOnly" true) -}}
{{- end -}}
{{- if and $v.auth.gateway.secretName (eq .name "gateway") -}}
{{- $mounts = append $mounts (dict "name" "gateway-auth" "mountPath" "/etc/foretoken/gateway" "readOnly" true) -}}
{{- end -}}
{{- toYaml $mounts -}}
{{- end -}}

{{- define "foretoken.volumes" -}}
{{- $v := .root.Values -}}
{{- $orchestrator := eq .name "orchestrator" -}}
{{- $gateway := eq .name "gateway" -}}
- name: tmp
  emptyDir: {}
{{- if include "foretoken.hasVolume" $v.models.volume }}
- {{- include "foretoken.volume" (dict "root" .root "name" "models" "volume" $v.models.volume) | nindent 2 }}
{{- end }}
{{- if $v.tls.enabled }}
- name: tls
  secret:
    secretName: {{ ternary (default (include "foretoken.tlsSecret" .root) $v.tls.publicSecretName) (include "foretoken.tlsSecret" .root) (or $orchestrator $gateway) }}
    defaultMode: 0440
{{- if $orchestrator }}
- name: peer-tls
  secret:
    secretName: {{ include "foretoken.tlsSecret" .root }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- with $v.auth.internal }}
{{- if and .secretName (not $gateway) }}
- name: internal-tokens
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
    items: [{key: {{ .key }}, path: tokens}]
{{- end }}
{{- end }}
{{- with $v.auth.gateway }}
{{- if and .secretName $gateway }}
- name: gateway-auth
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
    items: [{key: {{ .keys }}, path: keys}, {key: {{ .token }}, path: token}]
{{- end }}
{{- end }}
{{- with $v.auth.public }}
{{- if and .secretName $orchestrator }}
- name: public-tokens
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
    items: [{key: {{ .key }}, path: tokens}]
{{- end }}
{{- end }}
{{- with $v.auth.scopes }}
{{- if and .secretName $orchestrator }}
- name: scope-key
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
    items: [{key: {{ .key }}, path: key}]
{{- end }}
{{- end }}
{{- end -}}
