//! OpenTelemetry for proxyless: gRPC's standard metrics (gRFCs A66, A78, A79, A89, A91, A94, A96) and traces (gRFC A72) of
//! `xds:///` channels, through the providers of the application.
//!
//! ```
//! use opentelemetry_sdk::metrics::SdkMeterProvider;
//! use opentelemetry_sdk::propagation::TraceContextPropagator;
//! use opentelemetry_sdk::trace::SdkTracerProvider;
//! use proxyless_otel::OpenTelemetry;
//!
//! // With the exporters of the application, such as those of opentelemetry-otlp.
//! let meters = SdkMeterProvider::builder().build();
//! let tracers = SdkTracerProvider::builder().build();
//!
//! OpenTelemetry::builder()
//!     .meter_provider(&meters)
//!     .tracer_provider(&tracers)
//!     .text_map_propagator(TraceContextPropagator::new())
//!     .build()?
//!     .install();
//! // All channels that are built from now on are recorded and traced.
//! # Ok::<(), proxyless_otel::BuildError>(())
//! ```
//!
//! One channel alone gets it from its builder:
//!
//! ```
//! # let meters = opentelemetry_sdk::metrics::SdkMeterProvider::builder().build();
//! # let tracers = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
//! use proxyless_otel::OpenTelemetry;
//!
//! let otel = OpenTelemetry::builder()
//!     .meter_provider(&meters)
//!     .enable_metrics(["grpc.subchannel.disconnections", "grpc.lb.wrr.rr_fallback"])
//!     .optional_labels(["grpc.lb.locality", "grpc.lb.backend_service"])
//!     .tracer_provider(&tracers)
//!     .build()?;
//! let channel = proxyless::XdsChannel::builder("xds:///greeter").recorder(otel.clone()).tracer(otel);
//! # Ok::<(), proxyless_otel::BuildError>(())
//! ```
//!
//! # Metrics
//!
//! The instruments are those of [`proxyless::telemetry::instruments`], with their names, units, descriptions and, as
//! advice to the SDK, their bucket bounds. Those that the gRFCs have on by default are recorded; the builder enables
//! others and the optional labels. The meter is `proxyless`, with the version of this crate. There is no fallback to the
//! global meter provider (A66): without [`meter_provider`](OpenTelemetryBuilder::meter_provider) no metric is recorded.
//!
//! Recording a value allocates nothing here: attributes are built when a series is seen for the first time. By default the
//! SDK looks them up at every measurement. The feature `bound-instruments` makes that once per series, which is several
//! times faster. It is not the default because it is experimental in OpenTelemetry: it is for applications whose provider
//! is the one of `opentelemetry_sdk`, in the version of this crate; another one would silently drop the measurements.
//!
//! # Traces
//!
//! An RPC has the span `Sent.<service>.<method>` (kind: client), and each attempt a child `Attempt.<service>.<method>`
//! (kind: internal, as in grpc-go) with the attributes `previous-rpc-attempts` and `transparent-retry`, and the events of
//! A72. The parent is the [`opentelemetry::Context`] in the extensions of the request if there is one, otherwise the
//! current context of the task that makes the call:
//!
//! ```
//! # use opentelemetry::Context;
//! let mut request = tonic::Request::new("a message");
//! request.extensions_mut().insert(Context::current());
//! ```
//!
//! The context of the attempt is sent to the server by the propagator: W3C's, or [`GrpcTraceBinPropagator`] for peers that
//! use OpenCensus, or both in a `TextMapCompositePropagator`. A server continues the trace with [`MetadataExtractor`].
//!
//! One deviation from A72: a channel of tonic sees messages after their compression and before their decompression. The
//! event of a compressed message has `message-size-compressed` alone, without `message-size`.

#![forbid(unsafe_code)]

mod builder;
mod error;
mod metrics;
mod open_telemetry;
mod propagation;
mod traces;

pub use builder::OpenTelemetryBuilder;
pub use error::BuildError;
pub use open_telemetry::OpenTelemetry;
pub use propagation::{GrpcTraceBinPropagator, MetadataExtractor, MetadataInjector};

/// Says yes or no to a target or a method.
type Filter = std::sync::Arc<dyn Fn(&str) -> bool + Send + Sync>;

// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
