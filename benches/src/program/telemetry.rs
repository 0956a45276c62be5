//! The telemetry of the variants of proxyless.

use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use proxyless::XdsChannelBuilder;
use proxyless_otel::OpenTelemetry;

use super::discard::Discard;
use crate::service::BoxError;
use crate::stacks::Stack;

/// Adds the telemetry of a stack. Providers live as long as the program.
pub(super) fn add(stack: Stack, builder: XdsChannelBuilder) -> Result<XdsChannelBuilder, BoxError> {
    Ok(match stack {
        Stack::WithMetrics => builder.recorder(proxyless_admin::MetricStore::new()),
        Stack::WithOtel => {
            // Collected once a minute, as by default.
            let reader = PeriodicReader::builder(Discard).build();
            let provider = SdkMeterProvider::builder().with_reader(reader).build();
            let otel = OpenTelemetry::builder().meter_provider(&provider).build()?;
            std::mem::forget(provider);
            builder.recorder(otel)
        }
        Stack::WithTraces => {
            let provider = SdkTracerProvider::builder().with_batch_exporter(Discard).build();
            let otel = OpenTelemetry::builder().tracer_provider(&provider).build()?;
            std::mem::forget(provider);
            builder.tracer(otel)
        }
        _ => builder,
    })
}
