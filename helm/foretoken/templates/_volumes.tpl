{{/* Volumes that values describe: `existingClaim`, `hostPath`, or `claim`, which the
     chart creates. Helpers take a dict: root, name, volume. */}}
{{- define "foretoken.hasVolume" -}}
{{- if or .existingClaim .hostPath .claim.create -}}true{{- end -}}
{{- end -}}

{{/* `writable`: not for reading alone. */}}
{{- define "foretoken.volume" -}}
{{- $claim := .volume.existingClaim -}}
{{- if .volume.claim.create -}}
{{- $claim = printf "%s-%s" (include "foretoken.fullname" .root) .name -}}
{{- end -}}
name: {{ .name }}
{{- if $claim }}
persistentVolumeClaim:
  claimName: {{ $claim }}
  {{- if not .writable }}
  readOnly: true
  {{- end }}
{{- else }}
hostPath:
  path: {{ .volume.hostPath }}
  type: Directory
{{- end }}
{{- end -}}

{{/* Names, where a volume is described in more than one way. */}}
{{- define "foretoken.checkVolume" -}}
{{- $ways := 0 -}}
{{- range list .volume.existingClaim .volume.hostPath .volume.claim.create -}}
{{- if . -}}{{- $ways = add1 $ways -}}{{- end -}}
{{- end -}}
{{- if gt (int $ways) 1 -}}
{{- fail (printf "%s: want one of existingClaim, hostPath and claim.create, not both" .name) -}}
{{- end -}}
{{- end -}}
