//! Validation of matchers (gRFC A28, A63).

use envoy_types::pb::envoy::config::route::v3 as wire;
use envoy_types::pb::envoy::r#type::matcher::v3 as matcher;
use regex::{Regex, RegexBuilder};
use wire::header_matcher::HeaderMatchSpecifier;
use wire::route_match::PathSpecifier;

use super::{HeaderMatcher, HeaderValueMatcher, PathMatcher, StringMatchKind, StringMatcher};
use crate::resource::field::Field;
use crate::resource::re2;

/// The initial limit for the compiled size of a regex, sufficient for most.
const COMMON_REGEX_BYTES: usize = 16 << 10;

/// The path matcher of a route.
pub(crate) fn path_matcher(at: &Field<'_>, proto: &wire::RouteMatch) -> Option<PathMatcher> {
    // A28: case sensitive by default; a regex always is.
    let case_sensitive = proto.case_sensitive.is_none_or(|value| value.value);
    match &proto.path_specifier {
        Some(PathSpecifier::Prefix(prefix)) => {
            Some(PathMatcher::Prefix { prefix: prefix.clone(), case_sensitive })
        }
        Some(PathSpecifier::Path(path)) => Some(PathMatcher::Path { path: path.clone(), case_sensitive }),
        Some(PathSpecifier::SafeRegex(regex)) => {
            full_match(&at.field("safe_regex").field("regex"), &regex.regex).map(PathMatcher::Regex)
        }
        // A28: an unset or unsupported path specifier.
        _ => {
            at.reject("must have prefix, path or safe_regex");
            None
        }
    }
}

/// A header matcher of a route.
#[allow(deprecated)] // A63: the older fields stay supported
pub(crate) fn header_matcher(at: &Field<'_>, proto: &wire::HeaderMatcher) -> Option<HeaderMatcher> {
    use HeaderMatchSpecifier as Specifier;
    let string = |kind| Some(HeaderValueMatcher::String(StringMatcher { kind, ignore_case: false }));
    let name = at.field("name").require_text(&proto.name);
    let value = match &proto.header_match_specifier {
        Some(Specifier::ExactMatch(text)) => string(StringMatchKind::Exact(text.clone())),
        Some(Specifier::PrefixMatch(text)) => string(StringMatchKind::Prefix(text.clone())),
        Some(Specifier::SuffixMatch(text)) => string(StringMatchKind::Suffix(text.clone())),
        Some(Specifier::ContainsMatch(text)) => string(StringMatchKind::Contains(text.clone())),
        Some(Specifier::SafeRegexMatch(regex)) => {
            full_match(&at.field("safe_regex_match").field("regex"), &regex.regex)
                .and_then(|regex| string(StringMatchKind::Regex(regex)))
        }
        Some(Specifier::StringMatch(matcher)) => {
            string_matcher(&at.field("string_match"), matcher).map(HeaderValueMatcher::String)
        }
        Some(Specifier::RangeMatch(range)) if range.start > range.end => {
            at.field("range_match").reject("the end must not be smaller than the start");
            None
        }
        Some(Specifier::RangeMatch(range)) => {
            Some(HeaderValueMatcher::Range { start: range.start, end: range.end })
        }
        Some(Specifier::PresentMatch(present)) => Some(HeaderValueMatcher::Present(*present)),
        None => {
            at.reject("must say how the header is matched");
            None
        }
    };
    Some(HeaderMatcher { name: name?.to_ascii_lowercase(), value: value?, invert: proto.invert_match })
}

/// A string matcher (A63).
pub(crate) fn string_matcher(at: &Field<'_>, proto: &matcher::StringMatcher) -> Option<StringMatcher> {
    use matcher::string_matcher::MatchPattern;
    let kind = match &proto.match_pattern {
        Some(MatchPattern::Exact(text)) => StringMatchKind::Exact(text.clone()),
        Some(MatchPattern::Prefix(text)) => StringMatchKind::Prefix(text.clone()),
        Some(MatchPattern::Suffix(text)) => StringMatchKind::Suffix(text.clone()),
        Some(MatchPattern::Contains(text)) => StringMatchKind::Contains(text.clone()),
        Some(MatchPattern::SafeRegex(regex)) => {
            StringMatchKind::Regex(full_match(&at.field("safe_regex").field("regex"), &regex.regex)?)
        }
        Some(MatchPattern::Custom(_)) | None => {
            return at.fail("must have exact, prefix, suffix, safe_regex or contains");
        }
    };
    // A63: `ignore_case` does not apply to a regex.
    let ignore_case = proto.ignore_case && !matches!(kind, StringMatchKind::Regex(_));
    Some(StringMatcher { kind, ignore_case })
}

/// Compiles a regex that must match the whole text.
fn full_match(at: &Field<'_>, pattern: &str) -> Option<Regex> {
    let pattern = re2::rewrite(pattern);
    // Parsed on its own first: a pattern like `a)|(b` is valid only inside the anchoring group.
    if let Err(error) = regex_syntax::Parser::new().parse(&pattern) {
        return at.fail(format!("is not a valid regex: {error}"));
    }
    build(at, &format!("^(?:{pattern})$"))
}

/// Compiles a regex that may match any part of the text.
pub(crate) fn compile(at: &Field<'_>, pattern: &str) -> Option<Regex> {
    build(at, &re2::rewrite(pattern))
}

/// Compiles a regex within the limits. Its size is only known by trying: it is compiled with a small limit first and
/// with growing limits if necessary, which costs a third more than the last attempt.
fn build(at: &Field<'_>, pattern: &str) -> Option<Regex> {
    let limits = at.context().limits;
    let left = at.regex_bytes();
    let largest = limits.regex_bytes.min(left.get());
    let mut size = COMMON_REGEX_BYTES.min(largest);
    let why = loop {
        match RegexBuilder::new(pattern).size_limit(size).build() {
            Ok(regex) => {
                left.set(left.get() - size);
                return Some(regex);
            }
            Err(regex::Error::CompiledTooBig(_)) if size < largest => size = (size * 4).min(largest),
            Err(regex::Error::CompiledTooBig(_)) if largest == limits.regex_bytes => {
                break format!("is a regex of more than {largest} bytes when compiled, the limit");
            }
            Err(regex::Error::CompiledTooBig(_)) => {
                // Do not compile further regexes in vain.
                left.set(0);
                let limit = limits.regex_bytes_per_resource;
                break format!(
                    "the regexes of the resource have more than {limit} bytes when compiled, the limit"
                );
            }
            Err(error) => break format!("is not a valid regex: {error}"),
        }
    };
    at.reject(why);
    None
}
