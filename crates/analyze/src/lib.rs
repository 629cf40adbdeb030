// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pure analyses of recorded events: response chains and explanations.
