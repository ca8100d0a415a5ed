//! An API server with the chart's release, and the program as the release's objects configure it.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use e2e::{
    control_plane::ControlPlane,
    crds::Installed as Kinds,
    go,
    helm::{Helm, RELEASE, Values},
    installed::{Installed, Prepared},
    objects::{Contract, Objects},
    program::{self, Programs},
    provider::Provider,
    users::User,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server for one test, and helm for it as administrator.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) objects: Objects,
    pub(crate) helm: Helm,
}

/// The suffixes of the names of a release's Secrets.
pub(crate) const SECRETS: [&str; 4] = ["ca", "server", "client-ca", "client"];

impl Cluster {
    pub(crate) async fn start() -> Result<Self> {
        let components = Arc::new(go::components()?);
        let plane = ControlPlane::start(components, Contract::V1Beta2, Kinds::All).await?;
        let helm = Helm::on(&plane.kubeconfig(&User::administrator()))?;
        let objects = plane.objects("team-a");
        for namespace in ["team-a", "autoscaling"] {
            objects.create(json!({ "kind": "Namespace", "metadata": { "name": namespace } })).await?;
        }
        Ok(Self { plane, objects, helm })
    }

    /// Returns the data of the release's Secrets, by the suffix of their names.
    pub(crate) async fn certificates(&self) -> Result<BTreeMap<&'static str, Value>> {
        let mut all = BTreeMap::new();
        for of in SECRETS {
            let secret = self.objects.get("Secret", &format!("{RELEASE}-{of}")).await?;
            all.insert(of, secret.data["data"].clone());
        }
        Ok(all)
    }

    /// Deletes the Secrets of earlier releases in the namespace team-a, so that the next one creates them anew.
    pub(crate) async fn forget_certificates(&self) -> Result<()> {
        for of in SECRETS {
            self.objects.remove("Secret", &format!("{RELEASE}-{of}")).await?;
        }
        Ok(())
    }
}

/// Returns a release for one Cluster of the management cluster in which it is installed.
pub(crate) fn release() -> Values {
    let values = json!({ "clusterAPIMode": "kubeconfig-incluster", "autoDiscovery": { "clusterName": "prod" } });
    Values::new("team-a", values)
}

/// The running program of the release in team-a.
pub(crate) struct Started {
    pub(crate) programs: Programs,
    pub(crate) prepared: Prepared,
    pub(crate) provider: Provider,
    _directory: TempDir,
}

impl Started {
    pub(crate) async fn of_release(cluster: &Cluster) -> Result<Self> {
        let installed = Installed::read(&cluster.plane, "team-a").await?;
        let directory = tempfile::tempdir()?;
        let programs = Programs::new(program::build()?, directory.path().to_owned());
        let own = installed.kubeconfig(&cluster.plane).await?;
        let prepared = installed.prepare(directory.path(), &own).await?;
        let provider = prepared.serve(&programs, &[])?;
        Ok(Self { programs, prepared, provider, _directory: directory })
    }
}
