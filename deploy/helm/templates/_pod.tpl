{{- define "sealpost.labels" -}}
app.kubernetes.io/name: sealpost
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .process }}
{{- end }}

{{- define "sealpost.allLabels" -}}
{{ include "sealpost.labels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- /* Of one process (`root`, `process`), whose name is a command and a group of values. Of the spec, `own` has the rest. */}}
{{- define "sealpost.pod" -}}
{{- $root := .root }}
{{- $values := .root.Values }}
{{- $own := index $values .process }}
{{- $fixed := dict "METRICS_PORT" "9464" "PORT" "8080" "STATE_DIR" "/var/lib/sealpost" }}
metadata:
  labels: {{- include "sealpost.allLabels" . | nindent 4 }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    runAsGroup: 1000
    fsGroup: 1000
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: { type: RuntimeDefault }
  {{- /* It ends within ATTEMPT_DEADLINE_MS plus 2 s, after the 5 s in which it is taken off the Service. */}}
  terminationGracePeriodSeconds: {{ add 8 (ceil (divf (index $values.env "ATTEMPT_DEADLINE_MS" | default "15000") 1000)) }}
  {{- with .own }}{{ toYaml . | nindent 2 }}{{ end }}
  {{- with $values.pod }}{{ toYaml . | nindent 2 }}{{ end }}
  containers:
    - name: {{ .process }}
      {{- with $values.image }}
      image: {{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $root.Chart.AppVersion }}{{ end }}
      imagePullPolicy: {{ .pullPolicy }}
      {{- end }}
      args: [{{ .process }}]
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      envFrom:
        - secretRef: { name: {{ required "existingSecret is to name the Secret with DATABASE_URL and SECRETS_KEY" $values.existingSecret }} }
      env:
        {{- range $name, $value := merge $fixed $own.env $values.env }}
        - { name: {{ $name }}, value: {{ $value | quote }} }
        {{- end }}
      {{- if ne .process "migrate" }}
      ports:
        {{- if eq .process "serve" }}
        - { name: http, containerPort: 8080 }
        {{- end }}
        - { name: metrics, containerPort: 9464 }
      {{- /* A process that is not ready waits for the database, which a restart does not bring back. */}}
      livenessProbe:
        httpGet: { path: /healthz, port: metrics }
        initialDelaySeconds: 5
        timeoutSeconds: 5
      readinessProbe:
        httpGet: { path: /readyz, port: metrics }
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      lifecycle:
        preStop: { sleep: { seconds: 5 } }
      {{- end }}
      resources: {{- toYaml $own.resources | nindent 8 }}
      {{- if or $values.filesSecret $values.documentsClaim }}
      volumeMounts:
        {{- if $values.filesSecret }}
        - { name: files, mountPath: /etc/sealpost, readOnly: true }
        {{- end }}
        {{- if $values.documentsClaim }}
        - { name: documents, mountPath: /var/lib/sealpost }
        {{- end }}
  volumes:
    {{- with $values.filesSecret }}
    - { name: files, secret: { secretName: {{ . }} } }
    {{- end }}
    {{- with $values.documentsClaim }}
    - { name: documents, persistentVolumeClaim: { claimName: {{ . }} } }
    {{- end }}
      {{- end }}
{{- end }}
