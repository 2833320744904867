{{- /* Names that several files use. */ -}}
{{- define "weft.labels" -}}
app.kubernetes.io/name: weft
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* The name of objects without a namespace: that of the release's namespace, in which there is no dot, and the release's, so that two releases do not take each other's. */ -}}
{{- define "weft.clusterName" -}}
{{ printf "%s.%s" .Release.Namespace .Release.Name }}
{{- end -}}

{{- define "weft.image" -}}
{{- with .Values.weft.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* Always for a tag that is not a version: it may name another image tomorrow, and nodes must not keep the old one. */ -}}
{{- define "weft.pullPolicy" -}}
{{- with .Values.weft.image -}}
{{- if .pullPolicy }}{{ .pullPolicy }}
{{- else if or .digest (and (regexMatch "^v?[0-9]+\\.[0-9]+\\.[0-9]+" (.tag | default $.Chart.AppVersion)) (not (hasSuffix "-dirty" (.tag | default $.Chart.AppVersion)))) }}IfNotPresent
{{- else }}Always{{ end -}}
{{- end -}}
{{- end -}}

{{- /* Not empty if weftd is to carry packets itself. */ -}}
{{- define "weft.devices" -}}
{{- if or (eq .Values.weft.backend "udp") .Values.weft.userspaceDevices (eq .Values.weft.userspace "always") }}yes{{ end -}}
{{- end -}}

{{- /* The capabilities of weftd. NET_RAW is for packet sockets and raw ones, which wireguard has no use for, and for iptables of the legacy flavour. */ -}}
{{- define "weft.capabilities" -}}
{{- if or (and (include "weft.devices" .) (ne .Values.weft.backend "wireguard")) (not .Values.weft.enableNFTables) -}}
[NET_ADMIN, NET_RAW]
{{- else -}}
[NET_ADMIN]
{{- end -}}
{{- end -}}

{{- /* The command of a probe, which asks weftd at the socket on which it was told to listen. */ -}}
{{- define "weft.probe" -}}
exec:
  command:
    - /opt/bin/weft-cni
    - probe
    {{- range index . 1 }}
    {{- if regexMatch "^--?control-socket=" . }}
    - {{ . | quote }}
    {{- end }}
    {{- end }}
    - {{ index . 0 }}
{{- end -}}

{{- /* Not empty if the API server is to hold weftd to its own node: if that is asked for, or with auto if the server can. */ -}}
{{- define "weft.ownNodeOnly" -}}
{{- $can := and (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) -}}
{{- $asked := .Values.weft.ownNodeOnly | toString -}}
{{- if or (eq $asked "true") (and (eq $asked "auto") $can) }}yes{{ end -}}
{{- end -}}
