//! Which hosts an index may lead the server to.

use http::Uri;

use super::pool::Origin;

/// The public proxy of Go modules. It answers requests for large archives with a redirect to its bucket.
const GO_PROXY: &str = "https://proxy.golang.org";
const GO_BUCKET: (&str, &str) = ("storage.googleapis.com", "/proxy-golang-org-prod/");

/// Only the mirror and hosts that the operator named, and never from https to http.
pub(super) fn is_allowed(mirror: &Uri, file_hosts: &[String], uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let is_own = Origin::of(uri) == Origin::of(mirror);
    let is_named = file_hosts.iter().any(|named| named.eq_ignore_ascii_case(host));
    let is_safe = uri.scheme_str() == Some("https") || mirror.scheme_str() == Some("http");
    is_own || is_named && is_safe || is_bucket_of_go_proxy(mirror, uri)
}

/// Whether it is a file in the bucket of the public Go proxy, and that proxy is the mirror. The host serves the buckets of all its
/// customers, so the path decides.
fn is_bucket_of_go_proxy(mirror: &Uri, uri: &Uri) -> bool {
    let (host, folder) = GO_BUCKET;
    let path = uri.path();
    let is_plain = !path.contains("..") && !path.to_ascii_lowercase().contains("%2e");
    GO_PROXY.parse::<Uri>().is_ok_and(|proxy| Origin::of(mirror) == Origin::of(&proxy))
        && uri.scheme_str() == Some("https")
        // Neither a port nor a user.
        && uri.authority().is_some_and(|authority| authority.as_str().eq_ignore_ascii_case(host))
        && path.starts_with(folder)
        && is_plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Mirror;

    fn is_fetched(mirror: &str, url: &str) -> bool {
        let mirror = Mirror::parse(mirror).unwrap().base;
        url.parse::<Uri>().is_ok_and(|uri| is_allowed(&mirror, &["files.example".to_owned()], &uri))
    }

    #[test]
    fn files_come_from_the_mirror_and_from_named_hosts_and_never_from_https_to_http() {
        let (safe, plain) = ("https://mirror.example/simple", "http://mirror.example/simple");
        for (mirror, url, wanted) in [
            (safe, "https://mirror.example/files/a.whl", true),
            (safe, "https://files.example/a.whl", true),
            (safe, "https://FILES.example/a.whl", true),
            (safe, "http://files.example/a.whl", false),
            (safe, "http://mirror.example/files/a.whl", false),
            (safe, "https://mirror.example:8443/a.whl", false),
            (safe, "https://other.example/a.whl", false),
            (safe, "https://files.example.other.example/a.whl", false),
            (safe, "https://mirror.example@other.example/a.whl", false),
            (safe, "//other.example/a.whl", false),
            (plain, "http://files.example/a.whl", true),
            (plain, "http://other.example/a.whl", false),
            (plain, "http://127.0.0.1/a.whl", false),
        ] {
            assert_eq!(is_fetched(mirror, url), wanted, "{mirror} -> {url}");
        }
    }

    #[test]
    fn archives_of_the_public_go_proxy_come_from_its_bucket_and_no_other() {
        let (proxy, bucket) =
            ("https://proxy.golang.org", "https://storage.googleapis.com/proxy-golang-org-prod");
        let archive = format!("{bucket}/1d2e-golang.org%3A80.zip");
        for (mirror, url, wanted) in [
            (proxy, archive.clone(), true),
            (proxy, format!("{archive}?Expires=1&Signature=x"), true),
            ("https://user:word@proxy.golang.org", archive.clone(), true),
            ("https://go.example", archive.clone(), false),
            ("http://proxy.golang.org", archive.clone(), false),
            ("https://proxy.golang.org:8443", archive.clone(), false),
            ("https://proxy.golang.org.example", archive.clone(), false),
            (proxy, archive.replace("https:", "http:"), false),
            (proxy, archive.replace(".com/", ".com:443/"), false),
            (proxy, archive.replace(".com/", ".com:8443/"), false),
            (proxy, archive.replace("https://", "https://user@"), false),
            (proxy, archive.replace("storage.", "other-storage."), false),
            (proxy, archive.replace(".com/", ".com.example/"), false),
            (proxy, "https://storage.googleapis.com/another-bucket/a.zip".to_owned(), false),
            (proxy, "https://storage.googleapis.com/proxy-golang-org-production/a.zip".to_owned(), false),
            (proxy, bucket.to_owned(), false),
            (proxy, format!("{bucket}/../another-bucket/a.zip"), false),
            (proxy, format!("{bucket}/%2E%2e/another-bucket/a.zip"), false),
            (proxy, format!("{bucket}/.%2E/another-bucket/a.zip"), false),
            (proxy, "https://proxy-golang-org-prod.storage.googleapis.com/a.zip".to_owned(), false),
        ] {
            assert_eq!(is_fetched(mirror, &url), wanted, "{mirror} -> {url}");
        }
    }
}
