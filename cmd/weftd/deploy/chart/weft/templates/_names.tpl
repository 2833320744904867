{{- /* Names that several files use. */ -}}
{{- define "weft.labels" -}}
app.kubernetes.io/name: weft
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* What has no namespace carries the release's, in which there is no dot, and its name: two releases must not take each other's. */ -}}
{{- define "weft.clusterName" -}}
{{ printf "%s.%s" .Release.Namespace .Release.Name }}
{{- end -}}

{{- define "weft.image" -}}
{{- with .Values.weft.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* A tag that is no version may name another image tomorrow, and nodes must not keep the one that they have. */ -}}
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

{{- /* What weftd may do: NET_RAW is for packet sockets, and for iptables of the legacy flavour. */ -}}
{{- define "weft.capabilities" -}}
{{- if or (include "weft.devices" .) (not .Values.weft.enableNFTables) -}}
[NET_ADMIN, NET_RAW]
{{- else -}}
[NET_ADMIN]
{{- end -}}
{{- end -}}

{{- /* What kubelet runs, with the socket that weftd is told to listen on. */ -}}
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

{{- /* Not empty if the API server is to hold weftd to its own node: asked for, or auto and it can. */ -}}
{{- define "weft.ownNodeOnly" -}}
{{- $can := and (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) -}}
{{- $asked := .Values.weft.ownNodeOnly | toString -}}
{{- if or (eq $asked "true") (and (eq $asked "auto") $can) }}yes{{ end -}}
{{- end -}}
