//! The log over OTLP, for builds with the feature of that name: its dependencies double the tree. The log alone: figures are
//! scraped, which collectors know how to do.
//!
//! On as soon as one of the usual variables names a collector (`OTEL_EXPORTER_OTLP_ENDPOINT`, or `…_LOGS_ENDPOINT`); headers,
//! timeouts and the name of the service come from theirs. Protobuf over HTTP. Not promised: delivery. A collector that does not
//! answer costs records, never a renewal: they are sent from a thread of their own, out of a bounded queue.

#[cfg(feature = "otlp")]
use std::sync::OnceLock;
#[cfg(feature = "otlp")]
use tracing_subscriber::Layer;
#[cfg(feature = "otlp")]
use tracing_subscriber::registry::LookupSpan;

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"];

pub(super) fn wanted() -> bool {
    ENDPOINTS.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

#[cfg(feature = "otlp")]
static PROVIDER: OnceLock<opentelemetry_sdk::logs::SdkLoggerProvider> = OnceLock::new();

/// A layer that sends every record on; or why there is none.
#[cfg(feature = "otlp")]
pub(super) fn layer<S>() -> Result<Option<impl Layer<S>>, String>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
{
    use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
    if !wanted() {
        return Ok(None);
    }
    // The transport may be TLS. An error means that somebody has installed a provider, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exporter = opentelemetry_otlp::LogExporter::builder()
        .with_http()
        .build()
        .map_err(|error| format!("OTLP: {error}"))?;
    let resource = opentelemetry_sdk::Resource::builder().with_service_name(service()).build();
    let provider = opentelemetry_sdk::logs::SdkLoggerProvider::builder()
        .with_log_processor(Completed)
        .with_batch_exporter(exporter)
        .with_resource(resource)
        .build();
    let layer = OpenTelemetryTracingBridge::new(&provider);
    let _ = PROVIDER.set(provider);
    Ok(Some(layer))
}

/// Adds what a record does not say by itself.
#[cfg(feature = "otlp")]
#[derive(Debug)]
struct Completed;

#[cfg(feature = "otlp")]
impl opentelemetry_sdk::logs::LogProcessor for Completed {
    fn emit(
        &self,
        record: &mut opentelemetry_sdk::logs::SdkLogRecord,
        _: &opentelemetry::InstrumentationScope,
    ) {
        use super::context::{EPOCH, LogContext, NAMESPACE, NODE};
        use opentelemetry::logs::LogRecord as _;
        let Some(context) = LogContext::get() else { return };
        let said: Vec<String> = record.attributes_iter().map(|(name, _)| name.to_string()).collect();
        let is_missing = |name: &str| !said.iter().any(|said| said == name);
        if is_missing(NAMESPACE) {
            record.add_attribute(NAMESPACE, context.namespace.clone());
        }
        if is_missing(NODE) {
            record.add_attribute(NODE, context.node.clone());
        }
        if is_missing(EPOCH) {
            record.add_attribute(EPOCH, i64::try_from(context.epoch()).unwrap_or(i64::MAX));
        }
    }

    fn force_flush(&self) -> opentelemetry_sdk::error::OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: std::time::Duration) -> opentelemetry_sdk::error::OTelSdkResult {
        Ok(())
    }
}

#[cfg(not(feature = "otlp"))]
pub(super) fn layer() -> Result<Option<tracing_subscriber::layer::Identity>, String> {
    match wanted() {
        true => Err(format!(
            "{} is set, but this build does not support OTLP: build it with the cargo feature `otlp`",
            ENDPOINTS[0]
        )),
        false => Ok(None),
    }
}

#[cfg(feature = "otlp")]
fn service() -> String {
    std::env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "tenure".to_owned())
}

/// Sends what is left. Takes a moment at most.
pub(crate) fn finish() {
    #[cfg(feature = "otlp")]
    if let Some(provider) = PROVIDER.get() {
        // What a collector does not take by now is lost, as promised.
        let _ = provider.shutdown_with_timeout(std::time::Duration::from_secs(2));
    }
}
