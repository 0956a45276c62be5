//! The telemetry of the variants of proxyless.

use std::time::Duration;

use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider, Temporality};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use proxyless::XdsChannelBuilder;
use proxyless_otel::OpenTelemetry;

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

/// Drops all spans and metrics.
#[derive(Debug)]
struct Discard;

impl SpanExporter for Discard {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

impl PushMetricExporter for Discard {
    async fn export(&self, _: &ResourceMetrics) -> OTelSdkResult {
        Ok(())
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn temporality(&self) -> Temporality {
        Temporality::Cumulative
    }
}
