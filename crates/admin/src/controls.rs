//! Buttons on the live page that change something, for demos: the page shows them only where they are served.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::StatusCode;
use serde::Serialize;

use crate::page::json;

/// Rows of buttons, and their effect.
pub trait Controls: Send + Sync {
    /// The rows as they are now.
    fn rows(&self) -> Vec<ControlRow>;

    /// Runs the command of a button.
    ///
    /// # Errors
    /// If there is no such button now.
    fn act(&self, command: &str) -> Result<(), String>;
}

/// A row of buttons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ControlRow {
    /// The subject.
    pub label: String,
    /// Its state.
    pub state: String,
    /// The buttons: their labels and commands.
    pub buttons: Vec<(String, String)>,
}

/// The longest command.
const MAX_COMMAND: usize = 200;

pub(crate) fn router(controls: Arc<dyn Controls>) -> Router {
    Router::new().route("/proxyless/controls.json", get(rows).post(act)).with_state(controls)
}

async fn rows(State(controls): State<Arc<dyn Controls>>) -> Response {
    json(&controls.rows()).into_response()
}

/// Browsers send an Origin with every POST, and the guard compares it with the Host.
async fn act(State(controls): State<Arc<dyn Controls>>, command: String) -> Response {
    if command.len() > MAX_COMMAND {
        return (StatusCode::BAD_REQUEST, "the command is too long").into_response();
    }
    match controls.act(&command) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(why) => (StatusCode::BAD_REQUEST, why).into_response(),
    }
}
