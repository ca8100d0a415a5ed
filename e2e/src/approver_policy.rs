//! approver-policy's own judgement of requests for certificates, as cert-manager makes them.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};

use crate::{go, users::base64};

/// approver-policy's evaluators.
#[derive(Debug)]
pub struct ApproverPolicy {
    binary: PathBuf,
}

impl ApproverPolicy {
    /// Builds them unless they are built.
    pub fn new() -> Result<Self> {
        Ok(Self { binary: go::approver_policy()? })
    }

    /// Returns for each request the reason why the policy denies it, or `None` if it is approved. A policy that
    /// approver-policy's webhook refuses is an error.
    pub fn judge(&self, policy: &Value, requests: &[Value]) -> Result<Vec<Option<String>>> {
        let mut command = Command::new(&self.binary);
        command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting approver-policy's evaluators")?;
        let mut input = child.stdin.take().context("no standard input")?;
        input.write_all(json!({ "policy": policy, "requests": requests }).to_string().as_bytes())?;
        drop(input);
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let reasons: Vec<String> = serde_json::from_slice(&output.stdout)?;
        ensure!(reasons.len() == requests.len(), "{} answers to {} requests", reasons.len(), requests.len());
        Ok(reasons.into_iter().map(|reason| Some(reason).filter(|reason| !reason.is_empty())).collect())
    }
}

/// A request for a certificate.
#[derive(Clone, Debug)]
pub struct Request {
    /// The namespace that it is made in.
    pub namespace: String,
    /// Its common name.
    pub common_name: Option<String>,
    /// Its subject's alternative names.
    pub names: Vec<SanType>,
    /// Its usages, as in a Certificate.
    pub usages: Vec<String>,
    /// True for an authority.
    pub is_authority: bool,
}

impl Request {
    /// Creates the request of a Cluster Autoscaler with these URIs, byte by byte.
    pub fn of_caller(namespace: &str, uris: &[&str]) -> Result<Self> {
        let names = uris.iter().map(|uri| Ok(SanType::URI((*uri).try_into()?))).collect::<Result<_>>()?;
        let usages = ["digital signature", "client auth"].map(str::to_owned).to_vec();
        Ok(Self { namespace: namespace.to_owned(), common_name: None, names, usages, is_authority: false })
    }

    /// Creates the request that cert-manager makes for a Certificate.
    pub fn of_certificate(certificate: &Value) -> Result<Self> {
        let (metadata, spec) = (&certificate["metadata"], &certificate["spec"]);
        let texts = |field: &str| serde_json::from_value::<Option<Vec<String>>>(spec[field].clone());
        let uris = texts("uris")?.unwrap_or_default();
        let uris = uris.iter().map(|uri| Ok(SanType::URI(uri.as_str().try_into()?)));
        let dns_names = texts("dnsNames")?.unwrap_or_default();
        let dns_names = dns_names.iter().map(|name| Ok(SanType::DnsName(name.as_str().try_into()?)));
        Ok(Self {
            namespace: metadata["namespace"].as_str().context("a Certificate without a namespace")?.to_owned(),
            common_name: spec["commonName"].as_str().map(str::to_owned),
            names: uris.chain(dns_names).collect::<Result<_>>()?,
            usages: texts("usages")?.unwrap_or_default(),
            is_authority: spec["isCA"] == true,
        })
    }

    /// Returns the `CertificateRequest`, with a request that is signed by this key.
    pub fn object(&self, key: &KeyPair) -> Result<Value> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        if let Some(name) = &self.common_name {
            params.distinguished_name.push(DnType::CommonName, name.as_str());
        }
        params.subject_alt_names.clone_from(&self.names);
        let request = params.serialize_request(key)?.pem()?;
        Ok(json!({
            "apiVersion": "cert-manager.io/v1",
            "kind": "CertificateRequest",
            "metadata": { "namespace": self.namespace, "name": "requested-1" },
            "spec": {
                "request": base64(request.as_bytes()),
                "issuerRef": { "group": "cert-manager.io", "kind": "ClusterIssuer", "name": "capi-autoscaler-fleet" },
                "usages": self.usages,
                "isCA": self.is_authority,
                "username": "system:serviceaccount:cert-manager:cert-manager",
            },
        }))
    }
}
