//! Installs the manifests of a manager on an API server as its release does, except that webhooks are reached by URL:
//! the manager is a process on this machine without a Service.

use std::{fs, net::SocketAddr, path::Path};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{crds::established, objects::Objects, users::base64};

/// The address of a manager's webhooks.
pub struct Webhooks {
    /// The address and port by which the API server reaches them.
    pub address: SocketAddr,
    /// The PEM certificate of the authority that has signed the manager's.
    pub authority: String,
}

impl Webhooks {
    fn client_config(&self, path: &str) -> Value {
        json!({
            "url": format!("https://{}{path}", self.address),
            "caBundle": base64(self.authority.as_bytes()),
        })
    }
}

/// Installs all versions of the CRDs from the directory of a manager's manifests, and waits until they are served.
/// Their labels name the versions that follow the contract, as in the release.
///
/// Objects can be converted only once the manager runs.
pub async fn crds(objects: &Objects, manifests: &Path, webhooks: &Webhooks) -> Result<()> {
    let mut names = Vec::new();
    for file in fs::read_dir(manifests.join("crd/bases"))? {
        for mut crd in documents(&file?.path())? {
            crd["spec"]["conversion"] = json!({
                "strategy": "Webhook",
                "webhook": { "conversionReviewVersions": ["v1"], "clientConfig": webhooks.client_config("/convert") },
            });
            crd["metadata"]["labels"] = json!({ "cluster.x-k8s.io/v1beta2": "v1beta2" });
            names.push(objects.create(crd).await?.metadata.name.context("a CRD without name")?);
        }
    }
    ensure!(!names.is_empty(), "no CRDs in {}", manifests.display());
    for name in names {
        established(objects, &name).await?;
    }
    Ok(())
}

/// Installs a manager's defaulting and validating webhooks. From then on its kinds can be written only while it runs.
pub async fn admission(objects: &Objects, manifests: &Path, name: &str, webhooks: &Webhooks) -> Result<()> {
    for mut configuration in documents(&manifests.join("webhook/manifests.yaml"))? {
        let kind = configuration["kind"].as_str().context("a webhook configuration without kind")?.to_lowercase();
        configuration["metadata"]["name"] = json!(format!("{name}-{kind}"));
        let listed = configuration["webhooks"].as_array_mut().context("a webhook configuration without webhooks")?;
        for webhook in listed {
            let path = webhook["clientConfig"]["service"]["path"].as_str().context("a webhook without path")?;
            webhook["clientConfig"] = webhooks.client_config(path);
            // A busy machine may take longer than the default, 10 seconds; this is the longest that is allowed.
            webhook["timeoutSeconds"] = json!(30);
        }
        objects.create(configuration).await?;
    }
    Ok(())
}

/// Parses the objects of a YAML file.
fn documents(path: &Path) -> Result<Vec<Value>> {
    use serde::Deserialize;
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let documents = serde_yaml::Deserializer::from_str(&text).map(Value::deserialize);
    let documents: Vec<_> =
        documents.collect::<Result<_, _>>().with_context(|| format!("parsing {}", path.display()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}
