// Replaces the toolkit's header of this name: prelude.h has its contents.

#pragma once
