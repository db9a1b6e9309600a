{{- define "labels" -}}
app.kubernetes.io/name: stream-dp
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
