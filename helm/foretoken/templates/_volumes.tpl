{{/* Volumes that values describe: `existingClaim`, `hostPath`, `claim`, which the
     chart creates, or `fetch`, a space that a container fills. Helpers take a dict:
     root, name, volume. */}}
{{- define "foretoken.hasVolume" -}}
{{- if or .existingClaim .hostPath .claim.create (dig "fetch" "image" "" .) -}}true{{- end -}}
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
{{- else if dig "fetch" "image" "" .volume }}
emptyDir: {sizeLimit: {{ .volume.fetch.size }}}
{{- else }}
hostPath:
  path: {{ .volume.hostPath }}
  type: Directory
{{- end }}
{{- end -}}

{{/* Names, where a volume is described in more than one way. */}}
{{- define "foretoken.checkVolume" -}}
{{- $ways := 0 -}}
{{- range list .volume.existingClaim .volume.hostPath .volume.claim.create (dig "fetch" "image" "" .volume) -}}
{{- if . -}}{{- $ways = add1 $ways -}}{{- end -}}
{{- end -}}
{{- if gt (int $ways) 1 -}}
{{- fail (printf "%s: want one of existingClaim, hostPath, claim.create%s, not both" .name (ternary ", fetch.image" "" (hasKey .volume "fetch"))) -}}
{{- end -}}
{{- end -}}
