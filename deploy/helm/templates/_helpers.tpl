{{- define "labels" -}}
app.kubernetes.io/name: stream-dp
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "worker-labels" -}}
app.kubernetes.io/name: stream-dp-worker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
{{- define "egress" -}}
- to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}
  ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]
- to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .Values.networkPolicy.brokersNamespace }}
  ports: [{protocol: TCP, port: {{ .Values.networkPolicy.brokersPort }}}]
{{- end }}
