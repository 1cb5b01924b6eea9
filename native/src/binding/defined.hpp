// SPDX-License-Identifier: Apache-2.0
// The parts of the extension module, a file each.
#pragma once

#include <nanobind/nanobind.h>

namespace tmc {

void define_group(nanobind::module_& m);
void define_endpoint(nanobind::module_& m);
void define_sealed_link(nanobind::module_& m);
void define_asked(nanobind::module_& m);

}  // namespace tmc
