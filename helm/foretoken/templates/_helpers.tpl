{{/* Names and labels. Every helper of a service takes a dict: root (the
     top-level context), name (kebab-case), values (its part of .Values), port,
     metricsPort. */}}
{{- define "foretoken.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "foretoken.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- define "foretoken.labels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: foretoken
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "foretoken.metadata" -}}
name: {{ include "foretoken.fullname" .root }}-{{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "foretoken.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- define "foretoken.priorityClass" -}}
{{ .root.Release.Namespace }}-{{ include "foretoken.fullname" .root }}-{{ .class }}
{{- end -}}

{{/* The pod's field, if it has one: `values.priorityClassName`, or the created class. */}}
{{- define "foretoken.priority" -}}
{{- if .values.priorityClassName -}}
priorityClassName: {{ .values.priorityClassName }}
{{- else if .root.Values.priorityClasses.create -}}
priorityClassName: {{ include "foretoken.priorityClass" . }}
{{- end -}}
{{- end -}}

{{- define "foretoken.image" -}}
{{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) | quote }}
{{- end -}}

{{/* Whole numbers in a values file may be parsed as floats. */}}
{{- define "foretoken.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{/* Environment variable of a flag. */}}
{{- define "foretoken.env" -}}
FORETOKEN_{{ . | upper | replace "-" "_" }}
{{- end -}}

{{/* Secret with the certificate between the services: the chart's own or the user's. */}}
{{- define "foretoken.tlsSecret" -}}
{{- ternary (printf "%s-tls" (include "foretoken.fullname" .)) .Values.tls.secretName .Values.tls.generate -}}
{{- end -}}

{{/* cert-manager's issuer, as JSON; without a name, none. */}}
{{- define "foretoken.issuer" -}}
{{- $issuer := default dict .Values.tls.issuer -}}
{{- dict "name" (get $issuer "name") "kind" (default "Issuer" (get $issuer "kind")) | toJson -}}
{{- end -}}

{{/* Names of the certificate, as JSON: what the readiness probes and the services
     call each other, what clients in the cluster call orchestrator and gateway, and
     what pods of earlier versions expect during an upgrade. */}}
{{- define "foretoken.certificateNames" -}}
{{- $full := include "foretoken.fullname" . -}}
{{- $names := list "localhost" (printf "%s-verifier" $full) (printf "*.%s-verifier" $full) -}}
{{- range list "draft-worker" "trie-drafter" "crest" "orchestrator" "gateway" -}}
{{- $names = concat $names (list (printf "%s-%s" $full .) (printf "%s-%s-headless" $full .)) -}}
{{- end -}}
{{- range list "orchestrator" "gateway" -}}
{{- $name := printf "%s-%s.%s" $full . $.Release.Namespace -}}
{{- $names = concat $names (list $name (printf "%s.svc" $name)) -}}
{{- end -}}
{{- with .Values.tls.serverName -}}
{{- $names = append $names . -}}
{{- end -}}
{{- dict "names" (uniq $names) | toJson -}}
{{- end -}}
