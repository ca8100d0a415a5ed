//! Requests to an API server as a given user, with the warnings in its answers.

use anyhow::{Context as _, Result, ensure};
use e2e::{control_plane::ControlPlane, installed::Installed, objects::CAPI_GROUP};
use http::{Method, Request};
use kube::{Client, Config, client::Body, config::KubeConfigOptions};
use serde_json::{Map, Value};

/// Requests of one user, who is impersonated with all rights, so that only policies refuse requests, or who has a token
/// of its own.
#[derive(Clone)]
pub(crate) struct Api {
    client: Client,
    user: Option<String>,
}

/// An answer of the API server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
}

impl Answer {
    /// Fails unless the request succeeded without a warning.
    pub(crate) fn done(self) -> Result<Value> {
        ensure!(matches!(self.status, 200 | 201) && self.warnings.is_empty(), "{self:?}");
        Ok(self.body)
    }

    /// Fails unless a policy refused the request with this message.
    pub(crate) fn refused(&self, code: u16, words: &str) -> Result<()> {
        let message = self.body["message"].as_str().unwrap_or_default();
        ensure!(self.status == code && message.contains(words), "{self:?}, expected {code} with {words:?}");
        Ok(())
    }
}

/// Returns the path of the objects of a kind.
pub(crate) fn path(kind: &str) -> String {
    let plural = if kind.ends_with('s') { "es" } else { "s" };
    format!("/apis/{CAPI_GROUP}/v1beta2/namespaces/team-a/{}{plural}", kind.to_lowercase())
}

impl Api {
    /// Returns requests of a user that no policy mentions.
    pub(crate) async fn of_somebody(plane: &ControlPlane) -> Result<Self> {
        Ok(Self { client: plane.plain_client().await?, user: Some("mallory".to_owned()) })
    }

    /// Returns requests of the release's own ServiceAccount, with its rights.
    pub(crate) async fn of_release(plane: &ControlPlane) -> Result<Self> {
        let installed = Installed::read(plane, "team-a").await?;
        let kubeconfig = serde_json::from_value(installed.kubeconfig(plane).await?)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self { client: Client::try_from(config)?, user: None })
    }

    /// Returns the same for another user.
    pub(crate) fn as_user(&self, user: &str) -> Self {
        Self { client: self.client.clone(), user: Some(user.to_owned()) }
    }

    pub(crate) async fn create(&self, object: &Value) -> Result<Answer> {
        let kind = object["kind"].as_str().context("no kind")?;
        self.send(Method::POST, &path(kind), "application/json", object).await
    }

    /// Creates an object in a dry run.
    pub(crate) async fn try_create(&self, object: &Value) -> Result<Answer> {
        let kind = object["kind"].as_str().context("no kind")?;
        self.send(Method::POST, &format!("{}?dryRun=All", path(kind)), "application/json", object).await
    }

    pub(crate) async fn replace(&self, object: &Value) -> Result<Answer> {
        let [kind, name] = [&object["kind"], &object["metadata"]["name"]].map(|text| text.as_str().unwrap_or_default());
        self.send(Method::PUT, &format!("{}/{name}", path(kind)), "application/json", object).await
    }

    /// Applies a merge patch to an object, or to a subresource such as `workers/status`.
    pub(crate) async fn patch(&self, kind: &str, name: &str, patch: &Value) -> Result<Answer> {
        self.send(Method::PATCH, &format!("{}/{name}", path(kind)), "application/merge-patch+json", patch).await
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        let path = format!("{}/{name}", path(kind));
        let answer = self.send(Method::DELETE, &path, "application/json", &Value::Object(Map::new())).await?;
        answer.done().map(drop)
    }

    async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Result<Answer> {
        let mut request = Request::builder().method(method).uri(path).header("Content-Type", content_type);
        if let Some(user) = &self.user {
            request = request.header("Impersonate-User", user).header("Impersonate-Group", "system:masters");
        }
        let request = request.body(Body::from(body.to_string().into_bytes()))?;
        let answer = self.client.send(request).await?;
        let status = answer.status().as_u16();
        let warnings = answer.headers().get_all("warning").iter();
        let warnings = warnings.map(|text| Ok(text.to_str()?.to_owned())).collect::<Result<Vec<_>>>()?;
        let body = answer.into_body().collect_bytes().await?;
        Ok(Answer { status, warnings, body: serde_json::from_slice(&body)? })
    }
}
