//! A pod whose fit is reported with each group.

use rules::PodNeeds;

use super::report::PodReport;

/// A pod that may be scheduled.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Kind, namespace and name of the given object.
    pub name: String,
    /// Its requests and constraints.
    pub needs: PodNeeds,
    /// The parts of its spec that aren't considered.
    pub not_looked_at: Vec<&'static str>,
}

impl Pod {
    /// Returns its entry in a report.
    #[must_use]
    pub fn report(&self) -> PodReport {
        let requests = self.needs.requests.iter();
        PodReport {
            pod: self.name.clone(),
            requests: requests.map(|(resource, amount)| (resource.clone(), amount.to_string())).collect(),
            not_looked_at: self.not_looked_at.iter().map(|part| (*part).to_owned()).collect(),
        }
    }
}
