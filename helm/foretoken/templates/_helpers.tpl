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
