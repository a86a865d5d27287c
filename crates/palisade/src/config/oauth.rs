//! The settings of OAuth: whose tokens the server accepts, and for which resource.

use std::path::PathBuf;

use serde_json::{Value, json};
use service::{Issuer, OauthOptions, Resource};

use super::settings::{Origin, Valued};
use super::value::{Raw, parse_path};

/// The most issuers.
const ISSUERS_MAX: usize = 16;

/// A setting of OAuth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OauthKey {
    Issuers,
    Resource,
    CaFile,
}

impl OauthKey {
    pub(crate) const ALL: [Self; 3] = [Self::Issuers, Self::Resource, Self::CaFile];

    /// The last part of the setting's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Issuers => "issuers",
            Self::Resource => "resource",
            Self::CaFile => "ca_file",
        }
    }

    /// Interprets the text of a variable.
    pub(crate) fn raw(self, text: &str) -> Raw {
        match self {
            Self::Issuers => Raw::list_from_text(text),
            Self::Resource | Self::CaFile => Raw::Text(text.to_owned()),
        }
    }
}

/// A setting of OAuth with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OauthSetting {
    Issuers(Vec<Issuer>),
    Resource(Resource),
    CaFile(PathBuf),
}

impl OauthSetting {
    /// Checks a value. The error says what is valid.
    pub(crate) fn parse(key: OauthKey, raw: &Raw) -> Result<Self, String> {
        match (key, raw) {
            (OauthKey::Issuers, Raw::List(list)) => issuers(list).map(Self::Issuers),
            (OauthKey::Issuers, _) => Err(format!("it must be a list of URLs, not {}", raw.shown())),
            (OauthKey::Resource, Raw::Text(text)) => text.parse().map(Self::Resource),
            (OauthKey::Resource, _) => Err(format!("it must be a URL, not {}", raw.shown())),
            (OauthKey::CaFile, _) => parse_path(raw).map(Self::CaFile),
        }
    }

    pub(crate) fn key(&self) -> OauthKey {
        match self {
            Self::Issuers(_) => OauthKey::Issuers,
            Self::Resource(_) => OauthKey::Resource,
            Self::CaFile(_) => OauthKey::CaFile,
        }
    }
}

fn issuers(list: &[Raw]) -> Result<Vec<Issuer>, String> {
    let mut issuers: Vec<Issuer> = Vec::new();
    for raw in list {
        let Raw::Text(text) = raw else { return Err(format!("{} is no URL", raw.shown())) };
        let issuer: Issuer = text.parse()?;
        // Labels of callers name the issuer without its scheme.
        if issuers.iter().any(|other| other.label() == issuer.label()) {
            return Err(format!("`{issuer}` is named twice"));
        }
        issuers.push(issuer);
    }
    match issuers.len() > ISSUERS_MAX {
        true => Err(format!("there are more than {ISSUERS_MAX} issuers")),
        false => Ok(issuers),
    }
}

/// All settings of OAuth in force.
#[derive(Debug, Clone)]
pub(crate) struct OauthSettings {
    pub(crate) issuers: Valued<Vec<Issuer>>,
    pub(crate) resource: Valued<Option<Resource>>,
    pub(crate) ca_file: Valued<Option<PathBuf>>,
}

impl OauthSettings {
    /// No issuer.
    pub(crate) fn built_in() -> Self {
        Self {
            issuers: Valued::default(Vec::new()),
            resource: Valued::default(None),
            ca_file: Valued::default(None),
        }
    }

    pub(crate) fn apply(&mut self, setting: OauthSetting, origin: Origin) {
        match setting {
            OauthSetting::Issuers(issuers) => self.issuers.set(issuers, origin),
            OauthSetting::Resource(resource) => self.resource.set(Some(resource), origin),
            OauthSetting::CaFile(path) => self.ca_file.set(Some(path), origin),
        }
    }

    /// A value for `palisade config show`, and its origin.
    pub(crate) fn shown(&self, key: OauthKey) -> (Value, &Origin) {
        match key {
            OauthKey::Issuers => {
                let issuers: Vec<_> = self.issuers.value.iter().map(Issuer::as_str).collect();
                (json!(issuers), &self.issuers.origin)
            }
            OauthKey::Resource => {
                (json!(self.resource.value.as_ref().map(Resource::as_str)), &self.resource.origin)
            }
            OauthKey::CaFile => {
                let path = self.ca_file.value.as_ref().map(|path| path.display().to_string());
                (json!(path), &self.ca_file.origin)
            }
        }
    }

    /// The options of the service; `None` without an issuer.
    pub(crate) fn options(self) -> Result<Option<OauthOptions>, String> {
        if self.issuers.value.is_empty() {
            return Ok(None);
        }
        let Some(resource) = self.resource.value else {
            return Err(format!(
                "oauth.issuers ({}) needs oauth.resource: the URL by which clients know this server's /mcp",
                self.issuers.origin
            ));
        };
        Ok(Some(OauthOptions { issuers: self.issuers.value, resource, ca_file: self.ca_file.value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_text(key: OauthKey, text: &str) -> Result<OauthSetting, String> {
        OauthSetting::parse(key, &key.raw(text))
    }

    #[test]
    fn issuers_are_urls_and_each_is_named_once() {
        for good in ["https://a.example", "https://a.example,https://a.example/", "none"] {
            assert!(from_text(OauthKey::Issuers, good).is_ok(), "{good}");
        }
        let many: Vec<_> = (0..17).map(|number| format!("https://a{number}.example")).collect();
        for bad in [
            "a.example",
            "http://a.example",
            "https://a.example,https://a.example",
            "http://localhost,https://localhost",
            "https://a.example,",
            &many.join(","),
        ] {
            assert!(from_text(OauthKey::Issuers, bad).is_err(), "{bad}");
        }
        assert!(from_text(OauthKey::Resource, "https://tools.example/mcp").is_ok());
        assert!(from_text(OauthKey::Resource, "tools.example/mcp").is_err());
        assert!(from_text(OauthKey::CaFile, "ca.pem").is_err());
    }

    #[test]
    fn issuers_need_a_resource() {
        let mut settings = OauthSettings::built_in();
        assert_eq!(settings.clone().options(), Ok(None));
        settings.apply(from_text(OauthKey::Issuers, "https://a.example").unwrap(), Origin::Default);
        assert!(settings.clone().options().unwrap_err().contains("oauth.resource"));
        settings.apply(from_text(OauthKey::Resource, "https://t.example/mcp").unwrap(), Origin::Default);
        let options = settings.options().unwrap().unwrap();
        assert_eq!(options.resource.host(), "t.example");
    }
}
