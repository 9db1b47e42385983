{{/* The services that are enabled, as JSON: name, key of its values, ports;
     `portName`, if not grpc; `drafts`, if the orchestrator asks it for drafts;
     `egress`, the port of the database that it connects to. */}}
{{- define "foretoken.services" -}}
{{- $all := list
  (dict "name" "orchestrator" "key" "orchestrator" "port" 50050 "metricsPort" 9100)
  (dict "name" "verifier" "key" "verifier" "port" 50051 "metricsPort" 9101) -}}
{{- if .Values.draftWorker.enabled -}}
{{- $all = append $all (dict "name" "draft-worker" "key" "draftWorker" "port" 50052 "metricsPort" 9102 "drafts" true) -}}
{{- end -}}
{{- if .Values.trieDrafter.enabled -}}
{{- $all = append $all (dict "name" "trie-drafter" "key" "trieDrafter" "port" 50053 "metricsPort" 9103 "drafts" true "egress" .Values.trieDrafter.redis.port) -}}
{{- end -}}
{{- if .Values.crest.enabled -}}
{{- $all = append $all (dict "name" "crest" "key" "crest" "port" 50054 "metricsPort" 9104 "drafts" true "egress" .Values.crest.postgres.port) -}}
{{- end -}}
{{- if .Values.gateway.enabled -}}
{{- $all = append $all (dict "name" "gateway" "key" "gateway" "port" 8080 "metricsPort" 9105 "portName" "http") -}}
{{- end -}}
{{- dict "services" $all | toJson -}}
{{- end -}}

{{/* Settings of every service's listeners, then its own flags. */}}
{{- define "foretoken.config" -}}
FORETOKEN_LISTEN: {{ printf "%s:%d" .root.Values.bindAddress (int .port) | quote }}
FORETOKEN_METRICS_LISTEN: {{ ternary (printf "%s:%d" .root.Values.bindAddress (int .metricsPort)) (printf "127.0.0.1:%d" (int .metricsPort)) .root.Values.metrics.enabled | quote }}
{{- if ne .root.Values.metrics.names "foretoken" }}
FORETOKEN_METRICS_NAMES: {{ .root.Values.metrics.names | quote }}
{{- end }}
FORETOKEN_DRAIN_TIMEOUT: {{ printf "%ds" (int .root.Values.drainSeconds) | quote }}
{{- if .root.Values.tls.enabled }}
FORETOKEN_TLS_CERT: /etc/foretoken/tls/tls.crt
FORETOKEN_TLS_KEY: /etc/foretoken/tls/tls.key
{{- else }}
FORETOKEN_INSECURE: "true"
{{- end }}
{{- if has .name (list "orchestrator" "gateway") }}
{{- include (printf "foretoken.config.%s" .name) .root | nindent 0 }}
{{- else }}
{{- if .root.Values.tls.mutual }}
FORETOKEN_TLS_CLIENT_CA: /etc/foretoken/tls/ca.crt
{{- end }}
{{- if .root.Values.auth.internal.secretName }}
FORETOKEN_AUTH_TOKEN_FILE: /etc/foretoken/internal-tokens/tokens
{{- end }}
{{- include (printf "foretoken.config.%s" .name) .root | nindent 0 }}
{{- end }}
{{- range $flag, $value := .values.config }}
{{ include "foretoken.env" $flag }}: {{ include "foretoken.scalar" $value | quote }}
{{- end }}
{{- end -}}

{{- define "foretoken.config.verifier" -}}
FORETOKEN_MODEL: {{ .Values.models.target | quote }}
FORETOKEN_MODEL_NAME: {{ .Values.models.targetName | quote }}
{{- include "foretoken.config.engine" .Values.verifier }}
{{- end -}}

{{- define "foretoken.config.draft-worker" -}}
FORETOKEN_MODEL: {{ .Values.models.draft | quote }}
FORETOKEN_MODEL_NAME: {{ .Values.models.draftName | quote }}
{{- include "foretoken.config.engine" .Values.draftWorker }}
{{- end -}}

{{/* A requested GPU that is missing is an error, not a slow service. */}}
{{- define "foretoken.config.engine" }}
FORETOKEN_BACKEND: {{ ternary "cuda" "cpu" (gt (int .gpus) 0) }}
FORETOKEN_THREADS: {{ int .threads | quote }}
{{- end -}}

{{- define "foretoken.tokenizer" -}}
{{ default .Values.models.target .Values.models.tokenizer }}
{{- end -}}

{{- define "foretoken.config.trie-drafter" -}}
FORETOKEN_TOKENIZER: {{ include "foretoken.tokenizer" . | quote }}
{{- with .Values.trieDrafter.prior }}
FORETOKEN_PRIOR: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "foretoken.config.crest" -}}
FORETOKEN_TOKENIZER: {{ include "foretoken.tokenizer" . | quote }}
FORETOKEN_DATASTORE: {{ join "," .Values.crest.datastores | quote }}
{{- end -}}

{{/* It has the certificate and the roots of the orchestrator's listener. */}}
{{- define "foretoken.config.gateway" -}}
{{- if .Values.auth.gateway.secretName -}}
FORETOKEN_API_KEY_FILE: /etc/foretoken/gateway/keys
FORETOKEN_ORCHESTRATOR_TOKEN_FILE: /etc/foretoken/gateway/token
{{ end -}}
FORETOKEN_MODEL: {{ .Values.models.target | quote }}
FORETOKEN_ORCHESTRATOR: {{ printf "%s-orchestrator-headless:50050" (include "foretoken.fullname" .) | quote }}
{{- if .Values.tls.enabled }}
FORETOKEN_ORCHESTRATOR_TLS_CA: /etc/foretoken/tls/ca.crt
{{- with .Values.tls.serverName }}
FORETOKEN_ORCHESTRATOR_TLS_NAME: {{ . | quote }}
{{- end }}
{{- else }}
FORETOKEN_ORCHESTRATOR_INSECURE: "true"
{{- end }}
{{- end -}}

{{- define "foretoken.config.orchestrator" -}}
{{- $full := include "foretoken.fullname" . -}}
{{- if .Values.auth.public.secretName -}}
FORETOKEN_AUTH_TOKEN_FILE: /etc/foretoken/public-tokens/tokens
{{ end -}}
{{ if .Values.auth.scopes.secretName -}}
FORETOKEN_SCOPE_KEY_FILE: /etc/foretoken/scope-key/key
{{ end -}}
FORETOKEN_MODEL_NAME: {{ .Values.models.targetName | quote }}
FORETOKEN_TOKENIZER: {{ include "foretoken.tokenizer" . | quote }}
FORETOKEN_VERIFIERS: {{ printf "dns:///%s-verifier:50051" $full | quote }}
{{- range (include "foretoken.services" . | fromJson).services }}
{{- if .drafts }}
{{ include "foretoken.env" .name }}: {{ printf "dns:///%s-%s-headless:%d" $full .name (int .port) | quote }}
{{- end }}
{{- end }}
{{- range $peer := list "VERIFIER" "DRAFTER" }}
{{- if $.Values.tls.enabled }}
FORETOKEN_{{ $peer }}_TLS_CA: /etc/foretoken/peer-tls/ca.crt
{{- with $.Values.tls.serverName }}
FORETOKEN_{{ $peer }}_TLS_NAME: {{ . | quote }}
{{- end }}
{{- if $.Values.tls.mutual }}
FORETOKEN_{{ $peer }}_TLS_CERT: /etc/foretoken/peer-tls/tls.crt
FORETOKEN_{{ $peer }}_TLS_KEY: /etc/foretoken/peer-tls/tls.key
{{- end }}
{{- else }}
FORETOKEN_{{ $peer }}_INSECURE: "true"
{{- end }}
{{- if $.Values.auth.internal.secretName }}
FORETOKEN_{{ $peer }}_TOKEN_FILE: /etc/foretoken/internal-tokens/tokens
{{- end }}
{{- end }}
{{- end -}}

{{/* Rejects, by name, settings that would not start or would be insecure. */}}
{{- define "foretoken.check" -}}
{{- $v := .Values -}}
{{- if and (not $v.tls.enabled) (not $v.insecure) -}}
{{- fail "tls.enabled=false: listeners would accept unencrypted connections; set insecure=true to allow that" -}}
{{- end -}}
{{- if and $v.tls.enabled $v.insecure -}}
{{- fail "insecure=true: want tls.enabled=false with it" -}}
{{- end -}}
{{- if and $v.tls.mutual (not $v.tls.enabled) -}}
{{- fail "tls.mutual: want tls.enabled=true" -}}
{{- end -}}
{{- if and $v.tls.generate (or (not $v.tls.enabled) (include "foretoken.issuer" . | fromJson).name) -}}
{{- fail "tls.generate: want tls.enabled=true, and no tls.issuer" -}}
{{- end -}}
{{- if and $v.tls.enabled (not $v.tls.secretName) (not $v.tls.generate) -}}
{{- fail "tls.secretName: want the name of a Secret with tls.crt, tls.key and ca.crt" -}}
{{- end -}}
{{- if and (not $v.tls.enabled) (or $v.auth.public.secretName $v.auth.internal.secretName $v.auth.gateway.secretName) -}}
{{- fail "auth: tokens would cross the network in clear; want tls.enabled=true" -}}
{{- end -}}
{{- if $v.gateway.enabled -}}
{{- if and $v.auth.public.secretName (not $v.auth.gateway.secretName) -}}
{{- fail "auth.gateway.secretName: required by auth.public, or set gateway.enabled=false" -}}
{{- end -}}
{{- if and $v.auth.gateway.secretName (not $v.auth.public.secretName) -}}
{{- fail "auth.gateway: want auth.public, whose file says that the gateway speaks for others" -}}
{{- end -}}
{{- end -}}
{{- include "foretoken.checkVolume" (dict "name" "models.volume" "volume" $v.models.volume) -}}
{{- include "foretoken.checkVolume" (dict "name" "corpus" "volume" $v.corpus) -}}
{{- if and $v.corpus.fetch.image (not $v.corpus.fetch.command) -}}
{{- fail "corpus.fetch.command: required by corpus.fetch.image" -}}
{{- end -}}
{{- include "foretoken.checkBuilds" . -}}
{{- include "foretoken.checkAutoscaling" . -}}
{{- if and $v.orchestrator.grpcRoute.enabled (not $v.orchestrator.grpcRoute.parentRefs) -}}
{{- fail "orchestrator.grpcRoute.parentRefs: want the gateways" -}}
{{- end -}}
{{- if and $v.gateway.httpRoute.enabled (not $v.gateway.httpRoute.parentRefs) -}}
{{- fail "gateway.httpRoute.parentRefs: want the gateways" -}}
{{- end -}}
{{- if and (or $v.gateway.httpRoute.enabled $v.gateway.ingress.enabled) (not $v.gateway.enabled) -}}
{{- fail "gateway.enabled=false: want no way in to it (gateway.ingress, gateway.httpRoute)" -}}
{{- end -}}
{{- if $v.crest.enabled -}}
{{- if not $v.crest.datastores -}}
{{- fail "crest.datastores: want NAME=FILE or NAME=postgres, or crest.enabled=false" -}}
{{- end -}}
{{- range $v.crest.datastores -}}
{{- if and (hasSuffix "=postgres" .) (not $v.crest.postgres.secretName) (not $v.trial.postgres.enabled) -}}
{{- fail (printf "crest.postgres.secretName: required by datastore %s" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "foretoken.checkBuilds" -}}
{{- $v := .Values -}}
{{- $builds := list -}}
{{- if and $v.crest.enabled $v.crest.build.enabled -}}
{{- $builds = append $builds "crest.build" -}}
{{- if not (has (printf "%s=postgres" $v.crest.build.datastore) $v.crest.datastores) -}}
{{- fail (printf "crest.build.datastore: %s is not served; want %s=postgres in crest.datastores" $v.crest.build.datastore $v.crest.build.datastore) -}}
{{- end -}}
{{- end -}}
{{- if and $v.trieDrafter.enabled $v.trieDrafter.priorBuild.enabled -}}
{{- $builds = append $builds "trieDrafter.priorBuild" -}}
{{- if not $v.trieDrafter.prior -}}
{{- fail "trieDrafter.priorBuild: want trieDrafter.prior, the file to write" -}}
{{- end -}}
{{- if not (and (include "foretoken.hasVolume" $v.models.volume) (hasPrefix (printf "%s/" $v.models.volume.mountPath) $v.trieDrafter.prior)) -}}
{{- fail "trieDrafter.priorBuild: want models.volume, and trieDrafter.prior on it" -}}
{{- end -}}
{{- end -}}
{{- range $flag, $_ := $v.trieDrafter.priorBuild.config -}}
{{- if and $v.trieDrafter.priorBuild.enabled (not (has $flag (list "max-bytes" "order"))) (eq (eq $flag "exclude-ids") (ne $v.trieDrafter.priorBuild.prompts "")) -}}
{{- fail (printf "trieDrafter.priorBuild.config.%s: a flag of `foretoken prior %s`, which priorBuild.prompts %s" $flag (ternary "build" "grow" (eq $flag "exclude-ids")) (ternary "excludes" "asks for" (eq $flag "exclude-ids"))) -}}
{{- end -}}
{{- end -}}
{{- range $builds -}}
{{- if not (include "foretoken.hasVolume" $v.corpus) -}}
{{- fail (printf "%s: want corpus.existingClaim, corpus.hostPath, corpus.claim.create or corpus.fetch.image" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "foretoken.checkAutoscaling" -}}
{{- if and .Values.verifier.autoscaling.enabled (eq .Values.autoscaling.by "cpu") -}}
{{- fail "verifier.autoscaling: want autoscaling.by=metrics or keda; processor time says little about a verifier" -}}
{{- end -}}
{{- if ne .Values.autoscaling.by "cpu" -}}
{{- range $service := list "orchestrator" "verifier" "gateway" -}}
{{- $scaling := (index $.Values $service).autoscaling -}}
{{- if and $scaling.enabled (not (include "foretoken.targets" (dict "root" $ "name" $service) | fromJson).targets) -}}
{{- fail (printf "%s.autoscaling: every target is 0" $service) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $service := list "orchestrator" "verifier" "gateway" -}}
{{- $scaling := (index $.Values $service).autoscaling -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- fail (printf "%s.autoscaling: minReplicas is above maxReplicas" $service) -}}
{{- end -}}
{{- end -}}
{{- end -}}
