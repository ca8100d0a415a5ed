//! The instances of a group as the program reports them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::testbed::TIMEOUT;
use crate::{proto::instance_status::InstanceState, provider::Provider, wait::eventually};

/// The state, and the class of its error if it has one.
pub type ObservedInstance = (InstanceState, Option<i32>);

/// Returns the instances of a group by id.
pub async fn instances(provider: &Provider, id: &str) -> Result<BTreeMap<String, ObservedInstance>> {
    let mut seen = BTreeMap::new();
    for instance in provider.instances(id).await? {
        let status = instance.status.with_context(|| format!("instance {} without status", instance.id))?;
        let class = status.error_info.as_ref().map(|error| error.instance_error_class);
        seen.insert(instance.id, (status.instance_state(), class));
    }
    Ok(seen)
}

/// Waits until a group has exactly these instances.
pub async fn instances_are(
    provider: &Provider,
    id: &str,
    expected: impl IntoIterator<Item = (String, ObservedInstance)>,
) -> Result<()> {
    let expected: BTreeMap<_, _> = expected.into_iter().collect();
    eventually(&format!("instances of {id}"), TIMEOUT, async || {
        let seen = instances(provider, id).await?;
        ensure!(seen == expected, "they are {seen:#?}, expected {expected:#?}");
        Ok(())
    })
    .await
}

/// Waits until the program reports this size of a group.
pub async fn target_size_is(provider: &Provider, id: &str, expected: i32) -> Result<()> {
    eventually(&format!("target size of {id}"), TIMEOUT, async || {
        let size = provider.target_size(id).await?;
        ensure!(size == expected, "it is {size}, expected {expected}");
        Ok(())
    })
    .await
}
