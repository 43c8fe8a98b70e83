// Textures and surfaces, which the emulated GPU does not have: a call is an error at its line.

#pragma once

#define EMULATOR_REFUSED(name) \
  template <typename T = void, typename... Arguments> \
  __attribute__((error("the emulated GPU has no textures and surfaces: read and write global memory"))) T name( \
      Arguments...);
#define EMULATOR_REFUSED_TEXTURE(dimensions) \
  EMULATOR_REFUSED(tex##dimensions) \
  EMULATOR_REFUSED(tex##dimensions##Lod) \
  EMULATOR_REFUSED(tex##dimensions##Grad)
#define EMULATOR_REFUSED_SURFACE(dimensions) \
  EMULATOR_REFUSED(surf##dimensions##read) \
  EMULATOR_REFUSED(surf##dimensions##write)

EMULATOR_REFUSED(tex1Dfetch)
EMULATOR_REFUSED(tex2Dgather)
EMULATOR_REFUSED_TEXTURE(1D)
EMULATOR_REFUSED_TEXTURE(2D)
EMULATOR_REFUSED_TEXTURE(3D)
EMULATOR_REFUSED_TEXTURE(1DLayered)
EMULATOR_REFUSED_TEXTURE(2DLayered)
EMULATOR_REFUSED_TEXTURE(Cubemap)
EMULATOR_REFUSED_TEXTURE(CubemapLayered)
EMULATOR_REFUSED_SURFACE(1D)
EMULATOR_REFUSED_SURFACE(2D)
EMULATOR_REFUSED_SURFACE(3D)
EMULATOR_REFUSED_SURFACE(1DLayered)
EMULATOR_REFUSED_SURFACE(2DLayered)
EMULATOR_REFUSED_SURFACE(Cubemap)
EMULATOR_REFUSED_SURFACE(CubemapLayered)

#undef EMULATOR_REFUSED_SURFACE
#undef EMULATOR_REFUSED_TEXTURE
#undef EMULATOR_REFUSED
